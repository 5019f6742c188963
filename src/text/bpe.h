// Byte-pair merging: ranked merges over token ids, lowest rank first, leftmost on ties.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace exode::text {

class Bpe {
 public:
  Bpe() { byte_tokens_.fill(-1); }

  void set_byte_token(uint8_t byte, TokenId id) { byte_tokens_[byte] = id; }
  // Stands for bytes that have no token; without it they are left out. Where `fuse` is set one
  // stands for a run of them.
  void set_unknown(TokenId id, bool fuse) {
    unknown_ = id;
    fuse_unknown_ = fuse;
  }
  void reserve(size_t merges);
  // Of two merges of one pair the later counts.
  void add_merge(TokenId left, TokenId right, int32_t rank, TokenId merged);

  // Appends the ids of one piece. O(n log n).
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  // Open addressing: one cache line answers whether a pair merges, which is most of the work.
  struct Slot {
    uint64_t pair = kNoPair;
    int32_t rank = kNoRank;
    TokenId merged = -1;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr int32_t kNoRank = INT32_MAX;

  size_t slot_of(uint64_t pair) const;
  const Slot& find(TokenId left, TokenId right) const;
  void append_tokens(std::string_view piece, std::vector<TokenId>& ids) const;
  size_t merge_short(std::span<TokenId> ids) const;
  size_t merge_long(std::span<TokenId> ids) const;

  std::array<TokenId, 256> byte_tokens_{};
  TokenId unknown_ = -1;
  bool fuse_unknown_ = false;
  std::vector<Slot> slots_ = std::vector<Slot>(16);
  size_t used_ = 0;
};

}  // namespace exode::text
