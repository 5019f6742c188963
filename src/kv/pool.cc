#include "kv/pool.h"

#include <fmt/format.h>

namespace exode {

size_t KvPool::bytes_for(const KvGeometry& geometry, const KvFormat& format, int32_t blocks) {
  return format.block_bytes(geometry) * static_cast<size_t>(blocks) *
         static_cast<size_t>(geometry.layers);
}

KvPool::KvPool(const KvGeometry& geometry, const KvFormat& format, int32_t blocks,
               std::span<std::byte> memory)
    : geometry_(geometry),
      format_(&format),
      memory_(memory),
      block_bytes_(format.block_bytes(geometry)),
      references_(static_cast<size_t>(blocks), 0) {
  EXODE_CHECK(memory.size() >= bytes_for(geometry, format, blocks), "kv pool memory too small");
  free_.reserve(static_cast<size_t>(blocks));
  for (int32_t i = blocks - 1; i >= 0; --i) free_.push_back(i);
}

Result<BlockId> KvPool::take() {
  if (free_.empty()) {
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("all {} kv blocks are in use", references_.size())};
  }
  const BlockId block{free_.back()};
  free_.pop_back();
  references_[static_cast<size_t>(block.index)] = 1;
  return block;
}

void KvPool::share(BlockId block) {
  int32_t& references = references_[static_cast<size_t>(block.index)];
  EXODE_CHECK(references > 0, "shared a free kv block");
  ++references;
}

void KvPool::drop(BlockId block) {
  int32_t& references = references_[static_cast<size_t>(block.index)];
  EXODE_CHECK(references > 0, "dropped a free kv block");
  if (--references == 0) free_.push_back(block.index);
}

KvView KvPool::layer(int32_t index, ConstTensorView block_table) const {
  EXODE_CHECK(index >= 0 && index < geometry_.layers, "kv layer out of range");
  const size_t layer_bytes = block_bytes_ * references_.size();
  return {.base = memory_.data() + layer_bytes * static_cast<size_t>(index),
          .block_stride = static_cast<int64_t>(block_bytes_),
          .heads = geometry_.heads,
          .head_dim = geometry_.head_dim,
          .block_table = block_table,
          .format = format_};
}

}  // namespace exode
