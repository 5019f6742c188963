// Arguments of the expert kernels, and the choice of codecs for an op.
#pragma once

#include "ops/cuda/moe_codec.cuh"
#include "ops/cuda/moe_fast.h"

namespace exode::cuda::moe {

struct Args {
  Matrix gate_up, down, shared_gate_up, shared_down;
  ConstRows x, gate;   // gate: logit of the shared expert, one per row
  const int32_t* ids;  // [rows · top_k]
  const float* weights;
  Rows out;
  int rows, top_k, experts, hidden, inner;
  int shared_inner;  // 0: no shared expert
  __host__ __device__ int pairs() const { return rows * top_k; }
  __host__ __device__ bool has_shared() const { return shared_inner > 0; }
};

inline Args args_of(const ops::MoeExperts& op) {
  Args a{};
  a.gate_up = matrix_of(op.gate_up);
  a.down = matrix_of(op.down);
  a.x = rows_of(op.x);
  a.ids = ints(op.ids);
  a.weights = op.weights.row<float>(0);
  a.out = rows_of(op.out);
  a.rows = op.x.rows();
  a.top_k = op.ids.cols();
  a.experts = op.experts;
  a.hidden = op.x.cols();
  a.inner = op.down.cols;
  if (op.shared.empty()) return a;
  a.shared_gate_up = matrix_of(op.shared.gate_up);
  a.shared_down = matrix_of(op.shared.down);
  a.gate = rows_of(op.shared.gate_logit);
  a.shared_inner = op.shared.down.cols;
  return a;
}

// Calls body(codec) with the codec of a layout; fast_experts_apply() has checked that there is one.
template <class Body>
void with_codec(const WeightView& w, const Body& body) {
  if (w.layout == WeightLayout::kInt4Group) return body(Int4Codec{});
  if (w.layout == WeightLayout::kFp8Block) return body(Fp8Codec{});
  return body(Bf16Codec{});
}

// Calls body(codec of the experts, codec of the shared expert): the same one, or bf16.
template <class Body>
void with_codecs(const ops::MoeExperts& op, const Body& body) {
  with_codec(op.gate_up, [&](auto codec) {
    const bool same = op.shared.empty() || op.shared.gate_up.layout == op.gate_up.layout;
    if (same) return body(codec, codec);
    if constexpr (!std::is_same_v<decltype(codec), Bf16Codec>) body(codec, Bf16Codec{});
  });
}

}  // namespace exode::cuda::moe
