// Byte-pair merging: ranked merges over token ids, lowest rank first, leftmost on ties.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace exode::text {

class Bpe {
 public:
  // token_of_byte[b] is the id of the single byte b, -1 when the vocabulary has none.
  void set_byte_token(uint8_t byte, TokenId id) { byte_tokens_[byte] = id; }
  void add_merge(TokenId left, TokenId right, int32_t rank, TokenId merged);
  void reserve(size_t merges) { merges_.reserve(merges); }

  // Appends the ids of one piece. Bytes without a token are left out. O(n log n).
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  struct Merge {
    int32_t rank;
    TokenId merged;
  };
  struct Hash {
    size_t operator()(uint64_t key) const { return static_cast<size_t>(key * 0x9e3779b97f4a7c15u >> 16); }
  };
  const Merge* find(TokenId left, TokenId right) const;
  void encode_short(std::vector<TokenId>& ids) const;
  void encode_long(std::vector<TokenId>& ids) const;

  TokenId byte_tokens_[256] = {};
  std::unordered_map<uint64_t, Merge, Hash> merges_;
};

}  // namespace exode::text
