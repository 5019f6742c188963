#include "ops/memory.h"

#include "ops/require.h"

namespace exode::ops {
namespace {

void require_dense(const char* what, const ConstTensorView& t) {
  EXODE_CHECK(t.rows() <= 1 || t.row_stride == t.cols(), std::string(what) + " is not dense");
}

}  // namespace

void validate(const FillRandom& op) {
  require_dense("fill_random: out", op.out);
  EXODE_CHECK(is_float(op.out.dtype) || op.out.dtype == DType::kU8,
              "fill_random: out is " + describe(op.out) + ", expected a float type or u8");
}

void validate(const ReadWords& op) {
  require_dense("read_words: x", op.x);
  EXODE_CHECK(tensor_bytes(op.x) % sizeof(uint32_t) == 0, "read_words: x is not of whole words");
  EXODE_CHECK(op.out.rows() > 0, "read_words: out is empty");
  require_vector("read_words: out", op.out, op.out.rows(), DType::kI32);
}

void validate(const CopyBytes& op) {
  require_dense("copy_bytes: x", op.x);
  require_dense("copy_bytes: out", op.out);
  EXODE_CHECK(tensor_bytes(op.x) == tensor_bytes(op.out), "copy_bytes: sizes differ");
}

Cost cost(const FillRandom& op) { return {tensor_bytes(op.out), 0}; }
Cost cost(const ReadWords& op) { return {tensor_bytes(op.x) + tensor_bytes(op.out), 0}; }
Cost cost(const CopyBytes& op) { return {tensor_bytes(op.x) + tensor_bytes(op.out), 0}; }

}  // namespace exode::ops
