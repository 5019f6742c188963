// Strongly typed indices: a block is never mistaken for a slot.
#pragma once

#include <compare>
#include <cstdint>

namespace exode {

template <class Tag>
struct Id {
  int32_t index = -1;
  bool valid() const { return index >= 0; }
  auto operator<=>(const Id&) const = default;
};

using BlockId = Id<struct BlockTag>;  // one block of a KV pool
using SlotId = Id<struct SlotTag>;    // one recurrent-state slot
using TokenId = int32_t;              // index into the vocabulary
using RequestId = uint64_t;           // one request, unique for the life of the process

}  // namespace exode
