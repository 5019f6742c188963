#include "ops/rms_norm.h"

#include "ops/require.h"

namespace exode::ops {

void validate(const RmsNorm& op) {
  require_activation("rms_norm: x", op.x, op.x.rows(), op.x.cols());
  require_activation("rms_norm: out", op.out, op.x.rows(), op.x.cols());
  require_vector("rms_norm: weight", op.weight, op.x.cols(), DType::kF32);
}

void validate(const AddRmsNorm& op) {
  const int32_t rows = op.residual.rows(), width = op.residual.cols();
  require_activation("add_rms_norm: residual", op.residual, rows, width);
  require_activation("add_rms_norm: delta", op.delta, rows, width);
  require_activation("add_rms_norm: out", op.out, rows, width);
  require_vector("add_rms_norm: weight", op.weight, width, DType::kF32);
}

Cost cost(const RmsNorm& op) {
  return {tensor_bytes(op.x) + tensor_bytes(op.out) + tensor_bytes(op.weight),
          4 * product(op.x.rows(), op.x.cols())};
}

Cost cost(const AddRmsNorm& op) {
  return {2 * tensor_bytes(op.residual) + tensor_bytes(op.delta) + tensor_bytes(op.out) +
              tensor_bytes(op.weight),
          5 * product(op.residual.rows(), op.residual.cols())};
}

}  // namespace exode::ops
