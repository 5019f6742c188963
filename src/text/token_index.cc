#include "text/token_index.h"

#include <bit>
#include <functional>
#include <utility>

namespace exode::text {

size_t TokenIndex::slot_of(std::string_view key) const {
  const size_t mask = slots_.size() - 1;
  size_t i = std::hash<std::string_view>()(key) & mask;
  while (slots_[i].id >= 0 && key_of(slots_[i]) != key) i = (i + 1) & mask;
  return i;
}

void TokenIndex::reserve(size_t count) {
  const size_t wanted = std::bit_ceil(count * 2);
  if (wanted <= slots_.size()) return;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(wanted));
  for (const Slot& slot : old) {
    if (slot.id >= 0) slots_[slot_of(key_of(slot))] = slot;
  }
}

bool TokenIndex::insert(std::string_view key, TokenId id) {
  reserve(used_ + 1);
  Slot& slot = slots_[slot_of(key)];
  if (slot.id >= 0) return false;
  slot = {keys_.size(), static_cast<uint32_t>(key.size()), id};
  keys_ += key;
  ++used_;
  return true;
}

std::optional<TokenId> TokenIndex::find(std::string_view key) const {
  const Slot& slot = slots_[slot_of(key)];
  return slot.id >= 0 ? std::optional(slot.id) : std::nullopt;
}

}  // namespace exode::text
