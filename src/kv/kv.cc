#include "kv/kv.h"

#include "ops/require.h"

namespace exode::kv {
namespace {

using ops::require_activation;
using ops::require_vector;

void require_cache(const char* what, const KvView& cache) {
  EXODE_CHECK(cache.format != nullptr && cache.heads > 0 && cache.head_dim > 0, what);
  ops::require_dtype(what, cache.block_table, DType::kI32);
}

}  // namespace

void validate(const KvAppend& op) {
  require_cache("kv_append: cache", op.cache);
  const int32_t rows = op.k.rows(), width = op.cache.heads * op.cache.head_dim;
  require_activation("kv_append: k", op.k, rows, width);
  require_activation("kv_append: v", op.v, rows, width);
  require_vector("kv_append: positions", op.positions, rows, DType::kI32);
  require_vector("kv_append: seq_of_row", op.seq_of_row, rows, DType::kI32);
}

void validate(const Attend& op) {
  require_cache("attend: cache", op.cache);
  const int32_t rows = op.q.rows(), width = op.q.cols();
  require_activation("attend: q", op.q, rows, width);
  require_activation("attend: out", op.out, rows, width);
  require_vector("attend: positions", op.positions, rows, DType::kI32);
  require_vector("attend: seq_of_row", op.seq_of_row, rows, DType::kI32);
  const int32_t kv_width = op.cache.heads * op.cache.head_dim;
  EXODE_CHECK(width % kv_width == 0, "attend: q heads are not a multiple of kv heads");
  EXODE_CHECK(op.q.data != op.out.data, "attend: cannot run in place");
}

Cost cost(const KvAppend& op) {
  const uint64_t in = ops::tensor_bytes(op.k) + ops::tensor_bytes(op.v);
  return {2 * in, 0};
}

// An upper bound: the device knows the lengths, the host only the size of the block table.
Cost cost(const Attend& op) {
  const uint64_t tokens = static_cast<uint64_t>(op.cache.block_table.cols()) * kKvBlock;
  const KvGeometry g{.layers = 1, .heads = op.cache.heads, .head_dim = op.cache.head_dim};
  return {op.cache.format->block_bytes(g) * static_cast<uint64_t>(op.cache.block_table.cols()) +
              ops::tensor_bytes(op.q) + ops::tensor_bytes(op.out),
          4 * tokens * static_cast<uint64_t>(op.q.shape.elements())};
}

}  // namespace exode::kv
