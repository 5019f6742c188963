// What every op test needs: tensors that own memory, seeded data, one call that runs an op on a
// backend through Exec, and the error measures.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "ops/device_run.h"
#include "ops/exec.h"

namespace exode::testing {

// A dense tensor with its own memory (and a spare line past the end, like device buffers).
class HostTensor {
 public:
  HostTensor(DType dtype, Shape shape)
      : dtype_(dtype),
        shape_(shape),
        lines_(static_cast<size_t>(shape.elements()) * dtype_bytes(dtype) / 64 + 2) {}

  TensorView view() { return dense_view(lines_[0].bytes, dtype_, shape_); }
  ConstTensorView cview() const { return dense_view(lines_[0].bytes, dtype_, shape_); }
  int64_t size() const { return shape_.elements(); }

  float get(int64_t i) const {
    switch (dtype_) {
      case DType::kF32:
        return at<float>(i);
      case DType::kBF16:
        return bf16_to_float(at<uint16_t>(i));
      case DType::kF16:
        return f16_to_float(at<uint16_t>(i));
      case DType::kFp8E4M3:
        return fp8_e4m3_to_float(at<uint8_t>(i));
      case DType::kI32:
        return static_cast<float>(at<int32_t>(i));
      default:
        return static_cast<float>(at<uint8_t>(i));
    }
  }
  void set(int64_t i, float value) {
    switch (dtype_) {
      case DType::kF32:
        put<float>(i, value);
        break;
      case DType::kBF16:
        put<uint16_t>(i, float_to_bf16(value));
        break;
      case DType::kF16:
        put<uint16_t>(i, float_to_f16(value));
        break;
      case DType::kFp8E4M3:
        put<uint8_t>(i, float_to_fp8_e4m3(value));
        break;
      case DType::kI32:
        put<int32_t>(i, static_cast<int32_t>(value));
        break;
      default:
        put<uint8_t>(i, static_cast<uint8_t>(value));
        break;
    }
  }
  // Uniform in [low, high), from (seed, index) only.
  HostTensor& fill(uint64_t seed, float low = -1, float high = 1) {
    for (int64_t i = 0; i < size(); ++i) {
      set(i, low + (high - low) * random_unit(seed, static_cast<uint64_t>(i)));
    }
    return *this;
  }
  HostTensor& fill_values(const std::vector<float>& values) {
    for (size_t i = 0; i < values.size(); ++i) set(static_cast<int64_t>(i), values[i]);
    return *this;
  }
  std::vector<float> floats() const {
    std::vector<float> out(static_cast<size_t>(size()));
    for (int64_t i = 0; i < size(); ++i) out[static_cast<size_t>(i)] = get(i);
    return out;
  }

 private:
  struct alignas(64) Line {  // device memory is aligned like this
    std::byte bytes[64];
  };
  template <class T>
  T at(int64_t i) const {
    T value;
    std::memcpy(&value, lines_[0].bytes + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void put(int64_t i, T value) {
    std::memcpy(lines_[0].bytes + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  DType dtype_;
  Shape shape_;
  std::vector<Line> lines_;
};

// Runs one op on the reference or the tested backend with exactly the scratch that plan mode
// counted. kCpu is the tested backend, whatever the command line made it (ops/target.h); threads
// concern the CPU only.
class OpRunner {
 public:
  explicit OpRunner(Backend backend, int32_t threads = 2) {
    const bool tested = backend == Backend::kCpu;
    if (tested && on_cuda()) {
      device_ = target().cuda.get();
      table_ = cuda_ops(device_->caps(), target().numerics);
    } else {
      own_device_ = open_device({.name = "cpu", .threads = threads}).value();
      device_ = own_device_.get();
      table_ = tested ? cpu_ops(device_->caps(), target().numerics) : ref_ops(device_->caps());
    }
    on_copies_ = tested && (on_cuda() || target().guarded);
  }
  template <class Op>
  void operator()(const Op& op) {
    Arena counting = Arena::counting();
    Exec(Exec::Mode::kPlan, table_, device_->stream(), counting)(op);
    if (on_copies_) return run_on_copies(op, counting.peak_bytes());
    std::vector<std::byte> memory(counting.peak_bytes() + 64);
    auto* aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    Arena arena = Arena::over({aligned, counting.peak_bytes()});
    Exec(Exec::Mode::kRun, table_, device_->stream(), arena)(op);
  }
  Device& device() { return *device_; }
  const OpTable& table() const { return table_; }

 private:
  template <class Op>
  void run_on_copies(const Op& op, size_t scratch_bytes) {
    DeviceRun run(*device_, memory_, std::string(name(op)));
    const Op placed = run.place(op);
    Arena arena = Arena::over(run.scratch(scratch_bytes));
    Exec(Exec::Mode::kRun, table_, device_->stream(), arena)(placed);
    run.finish();
  }

  std::unique_ptr<Device> own_device_;
  Device* device_ = nullptr;
  bool on_copies_ = false;
  DeviceMemory memory_;
  OpTable table_;
};

// Σ(a − b)² / Σb²: 1e-10 is f32-exact for sums of a few thousand terms.
inline double nmse(const std::vector<float>& actual, const std::vector<float>& expected) {
  double error = 0, norm = 1e-30;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - expected[i];
    error += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return error / norm;
}

// The largest √nmse of a row of `width` values.
inline double worst_row_error(const std::vector<float>& actual, const std::vector<float>& expected,
                              int64_t width) {
  double worst = 0;
  for (size_t at = 0; at < expected.size(); at += static_cast<size_t>(width)) {
    const auto first = static_cast<int64_t>(at);
    const double row =
        std::sqrt(nmse({actual.begin() + first, actual.begin() + first + width},
                       {expected.begin() + first, expected.begin() + first + width}));
    worst = row <= worst ? worst : row;  // NaN stays
  }
  return worst;
}

// CUDA splits a key over the lanes of a warp.
inline bool is_built(const GdnShape& shape) {
  return !on_cuda() || (shape.key_dim % 32 == 0 && shape.value_dim % 32 == 0);
}

inline constexpr double kFastRowError = 2e-2;  // of 16-bit operands

// Results of an op whose products may have 16-bit operands: as exact as sums in f32 can be, or
// each row within kFastRowError.
inline void expect_products_close(const std::vector<float>& actual,
                                  const std::vector<float>& expected, int64_t width) {
  ASSERT_EQ(actual.size(), expected.size());
  if (fast_math()) {
    EXPECT_LE(worst_row_error(actual, expected, width), kFastRowError);
  } else {
    EXPECT_LE(nmse(actual, expected), 1e-10);
  }
}

}  // namespace exode::testing
