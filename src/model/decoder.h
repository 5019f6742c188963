// The frame that all decoder-only families share: embedding, a residual stream with one norm
// before each block, a final norm and the output head. Families differ in the two blocks of a
// layer, which they pass as functions.
#pragma once

#include <string>
#include <vector>

#include "model/model.h"
#include "weights/loader.h"

namespace exode {

struct DecoderConfig {
  int32_t vocab = 0, hidden = 0, layers = 0;
  float eps = 1e-6f;
  float norm_bias = 0;  // 1 where norm weights are stored minus one
  bool tied_head = false;
};

struct DecoderFrame {
  DecoderConfig config;
  WeightView embedding, head;
  ConstTensorView final_norm;
  struct LayerNorms {
    ConstTensorView mixer, ffn;  // before the token mixer, before the feed-forward block
  };
  std::vector<LayerNorms> norms;
};

// `prefix` ends with a dot: "model.", "model.language_model.".
Result<DecoderFrame> load_frame(WeightLoader& loader, const DecoderConfig& config,
                                const std::string& prefix);

// Runs mixer(layer, h, out) and ffn(layer, h, out) inside the frame.
template <class Mixer, class Ffn>
void run_decoder(Exec& x, const DecoderFrame& f, DType activations, const StepInputs& in,
                 const StepOutputs& out, const Mixer& mixer, const Ffn& ffn) {
  const auto scope = x.scope();
  const DecoderConfig& c = f.config;
  const int32_t rows = in.tokens.rows();
  const TensorView residual = x.temp(activations, rows, c.hidden);
  const TensorView normed = x.temp(activations, rows, c.hidden);
  const TensorView delta = x.temp(activations, rows, c.hidden);
  const auto add_and_norm = [&](ConstTensorView weight) {
    x(ops::AddRmsNorm{.residual = residual,
                      .delta = delta,
                      .weight = weight,
                      .out = normed,
                      .eps = c.eps,
                      .weight_bias = c.norm_bias});
  };
  x(ops::Embedding{.tokens = in.tokens, .table = f.embedding, .out = residual});
  x(ops::RmsNorm{.x = residual,
                 .weight = f.norms.front().mixer,
                 .out = normed,
                 .eps = c.eps,
                 .weight_bias = c.norm_bias});
  for (int32_t i = 0; i < c.layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    mixer(i, normed, delta);
    add_and_norm(f.norms[layer].ffn);
    ffn(i, normed, delta);
    add_and_norm(i + 1 < c.layers ? f.norms[layer + 1].mixer : f.final_norm);
  }
  if (in.sample_rows.rows() == 0) return;
  const TensorView sampled = x.temp(activations, in.sample_rows.rows(), c.hidden);
  x(ops::GatherRows{.x = normed, .index = in.sample_rows, .out = sampled});
  x(ops::MatMul{.x = sampled, .w = f.head, .out = out.logits});
}

}  // namespace exode
