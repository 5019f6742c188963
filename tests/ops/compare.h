// How the op tests judge: the CPU kernel against the reference within a tolerance, and against
// itself bit by bit, with other thread counts and with fewer rows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "ops/harness.h"

namespace exode::testing {

// A [rows, width] window into wider rows, as slices of a fused matmul are. What lies around the
// window is part of floats(), so that a write outside shows as a difference.
class Window {
 public:
  static constexpr int32_t kLeft = 3, kRight = 5;

  Window(int32_t rows, int32_t width, DType dtype = DType::kF32)
      : memory_(dtype, {rows, kLeft + width + kRight}), width_(width) {}
  Window& fill(uint64_t seed, float low = -1, float high = 1) {
    memory_.fill(seed, low, high);
    return *this;
  }
  TensorView view() { return memory_.view().slice_cols(kLeft, width_); }
  std::vector<float> floats() const { return memory_.floats(); }
  int64_t row_floats() const { return kLeft + width_ + kRight; }

 private:
  HostTensor memory_;
  int32_t width_;
};

inline HostTensor indices(const std::vector<int32_t>& values) {
  HostTensor t(DType::kI32, {static_cast<int32_t>(values.size())});
  std::memcpy(t.view().data, values.data(), values.size() * sizeof(int32_t));
  return t;
}

// NaN anywhere is an infinite difference.
inline double max_difference(const std::vector<float>& actual, const std::vector<float>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    const double d = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(d <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, d);
  }
  return worst;
}

// Fails unless both are the same bits; reports the first place where they are not.
inline void expect_same_bits(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::memcmp(&actual[i], &expected[i], sizeof(float)) == 0) continue;
    FAIL() << "element " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

// Prepares data from fixed seeds, runs ops on the first `rows` rows of it, returns everything the
// ops may have written, row by row.
using RowsProgram = std::function<std::vector<float>(OpRunner&, int32_t rows)>;

// Checks a program of row-wise ops: close to the reference, same bits with 1 and 3 threads, and
// the first rows get the same bits when the later ones are not there.
inline void check_rows(const RowsProgram& program, int32_t rows, double tolerance) {
  OpRunner reference(Backend::kRef), single(Backend::kCpu, 1), triple(Backend::kCpu, 3);
  const std::vector<float> actual = program(single, rows);
  EXPECT_LE(max_difference(actual, program(reference, rows)), tolerance);
  expect_same_bits(program(triple, rows), actual);
  for (const int32_t fewer : {1, rows / 2}) {
    if (fewer < 1 || fewer >= rows) continue;
    const std::vector<float> part = program(single, fewer);
    ASSERT_LT(part.size(), actual.size());
    expect_same_bits(part, {actual.begin(), actual.begin() + static_cast<int64_t>(part.size())});
  }
}

}  // namespace exode::testing
