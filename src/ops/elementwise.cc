#include "ops/elementwise.h"

#include "ops/require.h"

namespace exode::ops {

void validate(const SwiGlu& op) {
  require_activation("swiglu: out", op.out, op.out.rows(), op.out.cols());
  require_like("swiglu: gate_up", op.gate_up, op.out.rows(), 2 * int64_t{op.out.cols()},
               op.out.dtype);
}

void validate(const SigmoidGate& op) {
  require_activation("sigmoid_gate: x", op.x, op.x.rows(), op.x.cols());
  require_like("sigmoid_gate: gate", op.gate, op.x.rows(), op.x.cols(), op.x.dtype);
}

void validate(const AddGated& op) {
  require_activation("add_gated: out", op.out, op.out.rows(), op.out.cols());
  require_like("add_gated: x", op.x, op.out.rows(), op.out.cols(), op.out.dtype);
  require_like("add_gated: gate_logit", op.gate_logit, op.out.rows(), 1, op.out.dtype);
}

void validate(const Add& op) {
  require_activation("add: x", op.x, op.x.rows(), op.x.cols());
  require_like("add: delta", op.delta, op.x.rows(), op.x.cols(), op.x.dtype);
}

void validate(const GatherRows& op) {
  require_vector("gather_rows: index", op.index, op.out.rows(), DType::kI32);
  require_activation("gather_rows: x", op.x, op.x.rows(), op.x.cols());
  require_like("gather_rows: out", op.out, op.out.rows(), op.x.cols(), op.x.dtype);
}

Cost cost(const SwiGlu& op) {
  return {tensor_bytes(op.gate_up) + tensor_bytes(op.out),
          6 * product(op.out.rows(), op.out.cols())};
}

Cost cost(const SigmoidGate& op) {
  return {2 * tensor_bytes(op.x) + tensor_bytes(op.gate), 4 * product(op.x.rows(), op.x.cols())};
}

Cost cost(const AddGated& op) {
  return {2 * tensor_bytes(op.out) + tensor_bytes(op.x) + tensor_bytes(op.gate_logit),
          2 * product(op.x.rows(), op.x.cols())};
}

Cost cost(const Add& op) {
  return {2 * tensor_bytes(op.x) + tensor_bytes(op.delta), product(op.x.rows(), op.x.cols())};
}

Cost cost(const GatherRows& op) { return {2 * tensor_bytes(op.out) + tensor_bytes(op.index), 0}; }

}  // namespace exode::ops
