// out = x Wᵀ for any number of rows and every WeightLayout. No bias (Bias adds one where a family
// has it). Accumulates in f32; the order of summation over K depends on K and the layout only,
// never on the number of rows. On CUDA with fast numerics there are two orders: that of up to 32
// rows, where up to eight share their bits, and that of more rows.
#pragma once

#include "ops/op.h"

namespace exode::ops {

struct MatMul {
  ConstTensorView x;  // [rows, K]
  WeightView w;       // [N, K]
  TensorView out;     // [rows, N]
};

// The first half of a gated feed-forward block: out = silu(x Gᵀ) · (x Uᵀ) with w = [G; U].
struct MatMulSwiGlu {
  ConstTensorView x;  // [rows, K]
  WeightView w;       // [2·N, K]: gate rows, then up rows
  TensorView out;     // [rows, N]
};

void validate(const MatMul&);
void validate(const MatMulSwiGlu&);
Cost cost(const MatMul&);
Cost cost(const MatMulSwiGlu&);
constexpr std::string_view name(const MatMul&) { return "matmul"; }
constexpr std::string_view name(const MatMulSwiGlu&) { return "matmul_swiglu"; }

}  // namespace exode::ops
