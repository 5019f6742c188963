// out = x Wᵀ for any number of rows and every WeightLayout. No bias (Bias adds one where a family
// has it). Accumulates in f32; the order of summation over K depends on K and the layout only,
// never on the number of rows.
#pragma once

#include "ops/op.h"

namespace exode::ops {

struct MatMul {
  ConstTensorView x;  // [rows, K]
  WeightView w;       // [N, K]
  TensorView out;     // [rows, N]
};

void validate(const MatMul&);
Cost cost(const MatMul&);
constexpr std::string_view name(const MatMul&) { return "matmul"; }

}  // namespace exode::ops
