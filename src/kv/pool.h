// The blocks of one KV geometry, reference-counted. Engine thread only.
//
//   KvPool pool(geometry, *find_kv_format("bf16"), blocks, buffer.bytes());
//   EXODE_ASSIGN(BlockId block, pool.take());   // kOutOfMemory: the scheduler decides
//   pool.share(block);  pool.drop(block);       // freed at zero references
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kv/kv.h"

namespace exode {

class KvPool {
 public:
  static size_t bytes_for(const KvGeometry& geometry, const KvFormat& format, int32_t blocks);

  // `memory` holds bytes_for(geometry, format, blocks) bytes and outlives the pool.
  KvPool(const KvGeometry& geometry, const KvFormat& format, int32_t blocks,
         std::span<std::byte> memory);

  Result<BlockId> take();
  void share(BlockId block);
  void drop(BlockId block);

  int32_t free_blocks() const { return static_cast<int32_t>(free_.size()); }
  int32_t total_blocks() const { return static_cast<int32_t>(references_.size()); }
  // The cache of one layer; `block_table` is [seqs, blocks_max] i32 in device memory.
  KvView layer(int32_t index, ConstTensorView block_table) const;

 private:
  KvGeometry geometry_;
  const KvFormat* format_;
  std::span<std::byte> memory_;
  size_t block_bytes_;
  std::vector<int32_t> references_;
  std::vector<int32_t> free_;  // stack: the block freed last is taken first, it is warm
};

// Blocks that hold `tokens` tokens.
constexpr int32_t blocks_for_tokens(int64_t tokens) {
  return static_cast<int32_t>((tokens + kKvBlock - 1) / kKvBlock);
}

}  // namespace exode
