#include "state/pool.h"

#include <fmt/format.h>

namespace exode {
namespace {

size_t base_floats(const StateGeometry& g) {
  return static_cast<size_t>(g.gdn.value_width()) * static_cast<size_t>(g.gdn.key_dim);
}

size_t tail_floats(const StateGeometry& g) {
  return static_cast<size_t>(g.conv_width - 1) * static_cast<size_t>(g.gdn.conv_channels());
}

}  // namespace

size_t StateGeometry::bytes_per_slot() const {
  return static_cast<size_t>(layers) * (base_floats(*this) + tail_floats(*this)) * sizeof(float);
}

StatePool::StatePool(const StateGeometry& geometry, int32_t slots, std::span<std::byte> memory)
    : geometry_(geometry), slots_(slots), memory_(memory), used_(static_cast<size_t>(slots)) {
  EXODE_CHECK(memory.size() >= geometry.bytes_per_slot() * static_cast<size_t>(slots),
              "state pool memory too small");
  for (int32_t i = slots - 1; i >= 0; --i) free_.push_back(i);
}

Result<SlotId> StatePool::take() {
  if (free_.empty()) {
    return Error{ErrorCode::kOutOfMemory, fmt::format("all {} state slots are in use", slots_)};
  }
  const SlotId slot{free_.back()};
  free_.pop_back();
  used_[static_cast<size_t>(slot.index)] = true;
  return slot;
}

void StatePool::drop(SlotId slot) {
  EXODE_CHECK(slot.valid() && used_[static_cast<size_t>(slot.index)], "dropped a free state slot");
  used_[static_cast<size_t>(slot.index)] = false;
  free_.push_back(slot.index);
}

StateView StatePool::layer(int32_t index) const {
  EXODE_CHECK(index >= 0 && index < geometry_.layers, "state layer out of range");
  const auto slots = static_cast<size_t>(slots_);
  const size_t layer_floats = (base_floats(geometry_) + tail_floats(geometry_)) * slots;
  auto* base = reinterpret_cast<float*>(memory_.data()) + layer_floats * static_cast<size_t>(index);
  float* tail = base + base_floats(geometry_) * slots;
  return {
      .base = dense_view(base, DType::kF32,
                         {slots_, geometry_.gdn.value_width(), geometry_.gdn.key_dim}),
      .conv_tail = dense_view(tail, DType::kF32,
                              {slots_, geometry_.conv_width - 1, geometry_.gdn.conv_channels()})};
}

}  // namespace exode
