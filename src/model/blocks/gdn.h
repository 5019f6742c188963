// The Gated DeltaNet token mixer (ops/gdn.h has the maths).
#pragma once

#include <string>

#include "model/model.h"
#include "weights/loader.h"

namespace exode {

struct GdnConfig {
  int32_t hidden = 0;
  GdnShape shape;
  int32_t conv_width = 4;
  float eps = 1e-6f;
};

struct GdnWeights {
  WeightView qkvz;                 // [conv_channels + value_width, hidden]
  WeightView ba;                   // [2 · value_heads, hidden]: b rows, then a rows
  WeightView out;                  // [hidden, value_width]
  ConstTensorView conv;            // [conv_channels, conv_width] f32
  ConstTensorView a_log, dt_bias;  // [value_heads] f32
  ConstTensorView norm;            // [value_dim] f32
};

// `prefix` names the module, for example "model.layers.0.linear_attn".
Result<GdnWeights> load_gdn(WeightLoader& loader, const GdnConfig& config,
                            const std::string& prefix);

void run_gdn(Exec& x, const StepInputs& in, const GdnConfig& config, const GdnWeights& w,
             const StateView& state, ConstTensorView h, TensorView out);

}  // namespace exode
