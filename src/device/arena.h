// Bump allocator for everything temporary in a step. In counting mode it makes the same calls,
// hands out addresses that must not be touched, and remembers the peak: the code that will
// allocate is the code that measured.
//
//   Arena arena = Arena::over(workspace.bytes());
//   { auto scope = arena.scope(); auto t = arena.take(bytes); }   // rewound here
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"

namespace exode {

class Arena {
 public:
  static constexpr size_t kAlign = 64;

  static Arena over(std::span<std::byte> memory) {
    return Arena(memory.data(), memory.size(), false);
  }
  static Arena counting() {
    return Arena(reinterpret_cast<std::byte*>(uintptr_t{1} << 40), SIZE_MAX, true);
  }

  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.used_) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { arena_.used_ = mark_; }

   private:
    Arena& arena_;
    size_t mark_;
  };
  [[nodiscard]] Scope scope() { return Scope(*this); }

  // 64-byte aligned; aborts when the plan was too small, which is a bug of the plan.
  std::span<std::byte> take(size_t bytes) {
    const size_t rounded = (bytes + kAlign - 1) / kAlign * kAlign;
    EXODE_CHECK(counting_ || rounded <= capacity_ - used_, "workspace smaller than planned");
    std::byte* data = base_ + used_;
    used_ += rounded;
    peak_ = std::max(peak_, used_);
    return {data, bytes};
  }
  size_t peak_bytes() const { return peak_; }
  bool is_counting() const { return counting_; }

 private:
  Arena(std::byte* base, size_t capacity, bool counting)
      : base_(base), capacity_(capacity), counting_(counting) {}
  std::byte* base_;
  size_t capacity_;
  bool counting_;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace exode
