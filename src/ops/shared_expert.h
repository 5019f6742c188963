// The shared expert made of other ops, for kernels of MoeExperts that do not fold it in.
#pragma once

#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/moe.h"

namespace exode::ops {

struct SharedExpertOps {
  MatMulSwiGlu gate_up;
  MatMul down;
  AddGated add;
};

inline size_t padded_floats(int64_t count) {
  return static_cast<size_t>((count * int64_t{sizeof(float)} + 63) / 64 * 64);
}

// Memory for the values between the three ops: [rows, F'] and [rows, hidden].
inline size_t shared_expert_bytes(const MoeExperts& op) {
  if (op.shared.empty()) return 0;
  return padded_floats(int64_t{op.x.rows()} * op.shared.down.cols) +
         padded_floats(int64_t{op.x.rows()} * op.x.cols());
}

inline SharedExpertOps shared_expert_ops(const MoeExperts& op, std::byte* memory) {
  const int32_t rows = op.x.rows(), inner = op.shared.down.cols;
  const TensorView act = dense_view(memory, DType::kF32, {rows, inner});
  std::byte* rest = memory + padded_floats(int64_t{rows} * inner);
  const TensorView sum = dense_view(rest, DType::kF32, {rows, op.x.cols()});
  return {.gate_up = {.x = op.x, .w = op.shared.gate_up, .out = act},
          .down = {.x = act, .w = op.shared.down, .out = sum},
          .add = {.out = op.out, .x = sum, .gate_logit = op.shared.gate_logit}};
}

inline MoeExperts without_shared(MoeExperts op) {
  op.shared = {};
  return op;
}

}  // namespace exode::ops
