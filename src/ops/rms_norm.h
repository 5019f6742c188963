// Root-mean-square normalisation of each row:
//   RmsNorm:     out = x · rsqrt(mean(x²) + eps) · (weight + weight_bias)
//   AddRmsNorm:  residual += delta, then out = norm(residual): the residual stream is read once.
//
//   x(ops::RmsNorm{.x = h, .weight = w.norm, .out = n, .eps = 1e-6f, .weight_bias = 1});
//
// weight_bias is 1 for families that store (weight − 1), 0 otherwise. RmsNorm may run in place
// (out == x). Sums in f32 whatever the input type.
#pragma once

#include "ops/op.h"

namespace exode::ops {

struct RmsNorm {
  ConstTensorView x;       // [rows, width]
  ConstTensorView weight;  // [width] f32
  TensorView out;          // [rows, width]
  float eps = 1e-6f;
  float weight_bias = 0;
};

struct AddRmsNorm {
  TensorView residual;     // [rows, width], updated
  ConstTensorView delta;   // [rows, width]
  ConstTensorView weight;  // [width] f32
  TensorView out;          // [rows, width]
  float eps = 1e-6f;
  float weight_bias = 0;
};

void validate(const RmsNorm&);
void validate(const AddRmsNorm&);
Cost cost(const RmsNorm&);
Cost cost(const AddRmsNorm&);
constexpr std::string_view name(const RmsNorm&) { return "rms_norm"; }
constexpr std::string_view name(const AddRmsNorm&) { return "add_rms_norm"; }

}  // namespace exode::ops
