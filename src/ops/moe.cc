#include "ops/moe.h"

#include <algorithm>

#include "ops/require.h"
#include "ops/weights.h"

namespace exode::ops {
namespace {

void validate_shared(const MoeExperts& op) {
  const SharedExpert& s = op.shared;
  if (s.empty()) return;
  validate_weight("moe_experts: shared gate_up", s.gate_up);
  validate_weight("moe_experts: shared down", s.down);
  require_activation("moe_experts: gate_logit", s.gate_logit, op.x.rows(), 1);
  EXODE_CHECK(s.gate_up.cols == op.x.cols() && s.down.rows == op.x.cols() &&
                  s.gate_up.rows == 2 * s.down.cols,
              "moe_experts: the shared expert does not match the hidden and inner widths");
}

}  // namespace

void validate(const MoeRoute& op) {
  const int32_t rows = op.logits.rows(), top_k = op.ids.cols();
  require_activation("moe_route: logits", op.logits, rows, op.logits.cols());
  require_size("moe_route: ids", op.ids, rows, top_k);
  require_dtype("moe_route: ids", op.ids, DType::kI32);
  require_size("moe_route: weights", op.weights, rows, top_k);
  require_dtype("moe_route: weights", op.weights, DType::kF32);
  EXODE_CHECK(top_k >= 1 && top_k <= op.logits.cols(), "moe_route: top_k exceeds the experts");
}

void validate(const MoeExperts& op) {
  const int32_t rows = op.x.rows(), hidden = op.x.cols();
  require_activation("moe_experts: x", op.x, rows, hidden);
  require_activation("moe_experts: out", op.out, rows, hidden);
  require_size("moe_experts: ids", op.ids, rows, op.ids.cols());
  require_dtype("moe_experts: ids", op.ids, DType::kI32);
  require_size("moe_experts: weights", op.weights, rows, op.ids.cols());
  require_dtype("moe_experts: weights", op.weights, DType::kF32);
  validate_weight("moe_experts: gate_up", op.gate_up);
  validate_weight("moe_experts: down", op.down);
  EXODE_CHECK(op.experts > 0, "moe_experts: no experts");
  EXODE_CHECK(op.gate_up.cols == hidden && op.down.rows == op.experts * hidden &&
                  op.gate_up.rows == op.experts * 2 * op.down.cols,
              "moe_experts: expert stacks do not match the hidden and inner widths");
  for (const WeightView* w : {&op.gate_up, &op.down}) {
    EXODE_CHECK(w->layout != WeightLayout::kFp8Block || w->rows / op.experts % w->group == 0,
                "moe_experts: an expert must be whole fp8 blocks");
  }
  validate_shared(op);
}

Cost cost(const MoeRoute& op) {
  return {tensor_bytes(op.logits) + tensor_bytes(op.ids) + tensor_bytes(op.weights),
          product(op.logits.rows(), op.logits.cols(), 2)};
}

Cost cost(const MoeExperts& op) {
  const int64_t pairs = int64_t{op.x.rows()} * op.ids.cols();
  const uint64_t touched = static_cast<uint64_t>(std::min<int64_t>(pairs, op.experts));
  const uint64_t expert =
      (weight_bytes(op.gate_up) + weight_bytes(op.down)) / static_cast<uint64_t>(op.experts);
  Cost total{touched * expert + tensor_bytes(op.x) + tensor_bytes(op.out),
             6 * product(pairs, op.x.cols(), op.down.cols)};
  if (!op.shared.empty()) {
    total.bytes += weight_bytes(op.shared.gate_up) + weight_bytes(op.shared.down);
    total.flops += 6 * product(op.x.rows(), op.x.cols(), op.shared.down.cols);
  }
  return total;
}

}  // namespace exode::ops
