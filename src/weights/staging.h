// Fills device memory piece by piece. On the CPU the pieces are written in place; elsewhere into
// pinned buffers, by many threads, whose copies run beside the filling of the next one.
//
//   Staging staging(device, pool);
//   EXODE_TRY(staging.write(target, unit_bytes, [&](const Units& units, std::byte* out) { … }));
//   staging.finish();  // all copies are done
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "device/device.h"
#include "weights/decode.h"

namespace exode {

// Units [first, first + count) of a target.
struct Units {
  int32_t first = 0, count = 0;
};

class Staging {
 public:
  Staging(Device& device, ThreadPool* pool) : device_(device), pool_(pool) {}

  // The last unit may be short: what fill() writes past the end of the target must not exist.
  template <class Fill>
  Status write(std::span<std::byte> target, size_t unit_bytes, const Fill& fill) {
    const auto units = static_cast<int32_t>((target.size() + unit_bytes - 1) / unit_bytes);
    if (in_place()) {
      fill_units(units, unit_bytes, [&](int32_t begin, int32_t end) {
        fill(Units{begin, end - begin}, target.data() + static_cast<size_t>(begin) * unit_bytes);
      });
      return Done{};
    }
    EXODE_CHECK(unit_bytes <= kBytes, "a unit must fit a staging buffer");
    const auto per_chunk = static_cast<int32_t>(kBytes / unit_bytes);
    for (int32_t first = 0; first < units; first += per_chunk) {
      const int32_t count = std::min(per_chunk, units - first);
      const size_t offset = static_cast<size_t>(first) * unit_bytes;
      const size_t bytes =
          std::min(static_cast<size_t>(count) * unit_bytes, target.size() - offset);
      EXODE_ASSIGN(std::byte* const memory, reserve(bytes));
      fill_units(count, unit_bytes, [&](int32_t begin, int32_t end) {
        fill(Units{first + begin, end - begin}, memory + static_cast<size_t>(begin) * unit_bytes);
      });
      device_.copy_in_async(target.subspan(offset, bytes), {memory, bytes});
    }
    return Done{};
  }
  // Bytes as they are.
  Status write(std::span<std::byte> target, std::span<const std::byte> source);
  void finish();

 private:
  static constexpr size_t kBytes = size_t{32} << 20;  // of one buffer
  static constexpr size_t kGrainBytes = size_t{64} << 10;

  struct Pinned {
    Buffer memory;
    int64_t ticket = -1;  // of the copies out of it
    size_t used = 0;
  };

  bool in_place() const { return device_.backend() != Backend::kCuda; }
  // Room in the current buffer, or in the next one once its copies are done.
  Result<std::byte*> reserve(size_t bytes);
  template <class Body>
  void fill_units(int32_t units, size_t unit_bytes, const Body& body) {
    const auto grain = static_cast<int32_t>(std::max<size_t>(1, kGrainBytes / unit_bytes));
    for_ranges(pool_, units, grain, body);
  }

  Device& device_;
  ThreadPool* pool_;
  std::array<Pinned, 3> buffers_;  // fewer than the tickets a device remembers
  size_t current_ = 0;
};

}  // namespace exode
