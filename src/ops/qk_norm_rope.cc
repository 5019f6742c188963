#include "ops/qk_norm_rope.h"

#include "ops/require.h"

namespace exode::ops {

void validate(const QkNormRope& op) {
  const int32_t d = op.head_dim;
  EXODE_CHECK(d > 0 && op.q.cols() % d == 0 && op.k.cols() % d == 0,
              "qk_norm_rope: widths are not multiples of head_dim " + std::to_string(d));
  require_activation("qk_norm_rope: q", op.q, op.k.rows(), op.q.cols());
  require_activation("qk_norm_rope: k", op.k, op.q.rows(), op.k.cols());
  EXODE_CHECK(op.q_weight.empty() == op.k_weight.empty(),
              "qk_norm_rope: one norm weight is missing");
  if (!op.q_weight.empty()) {
    require_vector("qk_norm_rope: q_weight", op.q_weight, d, DType::kF32);
    require_vector("qk_norm_rope: k_weight", op.k_weight, d, DType::kF32);
  }
  require_dtype("qk_norm_rope: inv_freq", op.inv_freq, DType::kF32);
  EXODE_CHECK(2 * op.inv_freq.rows() <= d, "qk_norm_rope: rotary width exceeds head_dim");
  require_vector("qk_norm_rope: positions", op.positions, op.q.rows(), DType::kI32);
}

Cost cost(const QkNormRope& op) {
  const uint64_t elements = product(op.q.rows(), op.q.cols() + op.k.cols());
  return {2 * (tensor_bytes(op.q) + tensor_bytes(op.k)) + tensor_bytes(op.positions), 8 * elements};
}

}  // namespace exode::ops
