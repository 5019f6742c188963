#include "ops/embedding.h"

#include "ops/require.h"
#include "ops/weights.h"

namespace exode::ops {

void validate(const Embedding& op) {
  EXODE_CHECK(
      op.table.layout == WeightLayout::kDense || op.table.layout == WeightLayout::kInt8Group,
      "embedding: the table must be dense or int8");
  validate_weight("embedding: table", op.table);
  require_vector("embedding: tokens", op.tokens, op.out.rows(), DType::kI32);
  require_activation("embedding: out", op.out, op.out.rows(), op.table.cols);
}

void validate(const TakeTokens& op) {
  require_vector("take_tokens: tokens", op.tokens, op.source.rows(), DType::kI32);
  require_dtype("take_tokens: source", op.source, DType::kI32);
  require_dtype("take_tokens: drawn", op.drawn, DType::kI32);
}

Cost cost(const TakeTokens& op) { return {tensor_bytes(op.tokens) + tensor_bytes(op.source), 0}; }

Cost cost(const Embedding& op) {
  const uint64_t elements = product(op.out.rows(), op.out.cols());
  return {
      elements * dtype_bytes(op.table.codes.dtype) + tensor_bytes(op.out) + tensor_bytes(op.tokens),
      elements};
}

}  // namespace exode::ops
