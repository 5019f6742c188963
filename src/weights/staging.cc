#include "weights/staging.h"

#include <cstring>

namespace exode {

Result<std::byte*> Staging::reserve(size_t bytes) {
  constexpr size_t kAlign = 64;
  if (buffers_[current_].used + bytes > kBytes) {
    buffers_[current_].ticket = device_.ticket();
    current_ = (current_ + 1) % buffers_.size();
    if (buffers_[current_].ticket >= 0) device_.wait(buffers_[current_].ticket);
    buffers_[current_].used = 0;
  }
  Pinned& buffer = buffers_[current_];
  if (buffer.memory.bytes().empty()) {
    EXODE_ASSIGN(buffer.memory, device_.allocate_host(kBytes, "staging"));
  }
  std::byte* const memory = buffer.memory.bytes().data() + buffer.used;
  buffer.used += (bytes + kAlign - 1) / kAlign * kAlign;
  return memory;
}

// A page costs its first touch: large pieces are shared among the threads.
Status Staging::write(std::span<std::byte> target, std::span<const std::byte> source) {
  EXODE_CHECK(target.size() == source.size(), "a target of another size");
  constexpr size_t kPiece = size_t{256} << 10;
  return write(target, kPiece, [&](const Units& units, std::byte* out) {
    const size_t from = static_cast<size_t>(units.first) * kPiece;
    const size_t bytes = std::min(static_cast<size_t>(units.count) * kPiece, source.size() - from);
    std::memcpy(out, source.data() + from, bytes);
  });
}

void Staging::finish() {
  if (!in_place()) device_.synchronize();
}

}  // namespace exode
