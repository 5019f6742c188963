#include "ops/sample.h"

#include "ops/require.h"

namespace exode::ops {

void validate(const Sample& op) {
  const int32_t n = op.logits.rows();
  require_dtype("sample: logits", op.logits, DType::kF32);
  require_vector("sample: rows", op.rows, int64_t{n} * static_cast<int64_t>(sizeof(SampleRow)),
                 DType::kU8);
  require_dtype("sample: history", op.history, DType::kU8);
  require_dtype("sample: bias", op.bias, DType::kU8);
  require_vector("sample: next_token", op.next_token, n, DType::kI32);
  EXODE_CHECK(op.vocab_limit >= 1 && op.vocab_limit <= op.logits.cols(),
              "sample: vocab_limit " + std::to_string(op.vocab_limit) + " of " +
                  std::to_string(op.logits.cols()));
}

Cost cost(const Sample& op) {
  return {tensor_bytes(op.logits), 4 * product(op.logits.rows(), op.logits.cols())};
}

}  // namespace exode::ops
