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

// The appending half of the op, once its other half has run.
KvAppend append_of(const RotateAppend& op) {
  return {.cache = op.cache,
          .k = op.rotate.k,
          .v = op.v,
          .positions = op.rotate.positions,
          .seq_of_row = op.seq_of_row};
}

void validate(const RotateAppend& op) {
  ops::validate(op.rotate);
  EXODE_CHECK(op.rotate.head_dim == op.cache.head_dim,
              "rotate_append: head_dim differs from that of the cache");
  validate(append_of(op));
}

void validate(const Attend& op) {
  require_cache("attend: cache", op.cache);
  const int32_t rows = op.q.rows(), width = op.q.cols();
  require_activation("attend: q", op.q, rows, width);
  require_activation("attend: out", op.out, rows, width);
  require_vector("attend: positions", op.positions, rows, DType::kI32);
  require_vector("attend: seq_of_row", op.seq_of_row, rows, DType::kI32);
  if (!op.gate.empty()) require_activation("attend: gate", op.gate, rows, width);
  if (op.seqs.seqs() > 0) {
    const int32_t seqs = op.seqs.seqs();
    require_vector("attend: row_first", op.seqs.row_first, seqs, DType::kI32);
    require_vector("attend: row_count", op.seqs.row_count, seqs, DType::kI32);
    EXODE_CHECK(seqs <= op.cache.block_table.rows(),
                "attend: more sequences than the block table has rows");
  }
  const int32_t kv_width = op.cache.heads * op.cache.head_dim;
  EXODE_CHECK(width % kv_width == 0, "attend: q heads are not a multiple of kv heads");
  EXODE_CHECK(op.q.data != op.out.data, "attend: cannot run in place");
}

Cost cost(const KvAppend& op) {
  const uint64_t in = ops::tensor_bytes(op.k) + ops::tensor_bytes(op.v);
  return {2 * in, 0};
}

Cost cost(const RotateAppend& op) {
  const uint64_t k = ops::tensor_bytes(op.rotate.k), v = ops::tensor_bytes(op.v);
  return {2 * (ops::tensor_bytes(op.rotate.q) + k + v), ops::cost(op.rotate).flops};
}

// An upper bound: the device knows the lengths, the host only the size of the block table.
Cost cost(const Attend& op) {
  const uint64_t tokens = static_cast<uint64_t>(op.cache.block_table.cols()) * kKvBlock;
  const KvGeometry g{.layers = 1, .heads = op.cache.heads, .head_dim = op.cache.head_dim};
  return {op.cache.format->block_bytes(g) * static_cast<uint64_t>(op.cache.block_table.cols()) +
              ops::tensor_bytes(op.q) + ops::tensor_bytes(op.out) + ops::tensor_bytes(op.gate),
          4 * tokens * static_cast<uint64_t>(op.q.shape.elements())};
}

}  // namespace exode::kv
