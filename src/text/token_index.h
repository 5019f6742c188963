// From strings to token ids. Holds the strings in one block: a quarter of a million entries load
// in a fraction of the time and memory of a node-based map.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace exode::text {

class TokenIndex {
 public:
  void reserve(size_t count);
  // False when the string is there already; then nothing changes.
  bool insert(std::string_view key, TokenId id);
  std::optional<TokenId> find(std::string_view key) const;
  size_t size() const { return used_; }

 private:
  struct Slot {
    uint64_t begin = 0;  // of the key in keys_
    uint32_t length = 0;
    TokenId id = -1;  // −1: free
  };
  size_t slot_of(std::string_view key) const;
  std::string_view key_of(const Slot& slot) const {
    return std::string_view(keys_).substr(slot.begin, slot.length);
  }

  std::string keys_;
  std::vector<Slot> slots_ = std::vector<Slot>(16);
  size_t used_ = 0;
};

}  // namespace exode::text
