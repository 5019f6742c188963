// Recurrent state of Gated DeltaNet layers: one slot per running sequence, f32, one fixed size.
// Never paged: a slot is read and written whole in every step.
//
//   EXODE_ASSIGN(SlotId slot, states.take());   ...   states.drop(slot);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "ops/gdn.h"

namespace exode {

struct StateGeometry {
  int32_t layers = 0;
  GdnShape gdn;
  int32_t conv_width = 4;
  size_t bytes_per_slot() const;  // all layers, delta state and convolution tail
};

class StatePool {
 public:
  // `memory` holds slots · bytes_per_slot() bytes and outlives the pool.
  StatePool(const StateGeometry& geometry, int32_t slots, std::span<std::byte> memory);

  Result<SlotId> take();  // its contents are stale: the first slice must be marked fresh
  void drop(SlotId slot);
  int32_t free_slots() const { return static_cast<int32_t>(free_.size()); }
  StateView layer(int32_t index) const;

 private:
  StateGeometry geometry_;
  int32_t slots_;
  std::span<std::byte> memory_;
  std::vector<int32_t> free_;
  std::vector<bool> used_;
};

}  // namespace exode
