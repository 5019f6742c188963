// Per-head RMS norm of q and k (optional) followed by rotary embedding of the first rotary_dim
// values of each head, NeoX pairing (j with j + rotary_dim/2), in place:
//   angle = position · inv_freq[j];  y_j = x_j cos − x_{j+h} sin;  y_{j+h} = x_{j+h} cos + x_j sin
// both multiplied by rope_scale (1 except for YaRN). Angles, sin and cos in f32.
#pragma once

#include "ops/op.h"

namespace exode::ops {

struct QkNormRope {
  TensorView q;                        // [rows, q_heads · head_dim], updated
  TensorView k;                        // [rows, k_heads · head_dim], updated
  ConstTensorView q_weight, k_weight;  // [head_dim] f32; both empty = no norm
  ConstTensorView inv_freq;            // [rotary_dim / 2] f32
  ConstTensorView positions;           // [rows] i32; < 0 = padding, row left alone
  int32_t head_dim = 0;
  float eps = 1e-6f;
  float weight_bias = 0;
  float rope_scale = 1;
};

void validate(const QkNormRope&);
Cost cost(const QkNormRope&);
constexpr std::string_view name(const QkNormRope&) { return "qk_norm_rope"; }

}  // namespace exode::ops
