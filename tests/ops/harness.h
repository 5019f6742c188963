// What every op test needs: tensors that own memory, seeded data, one call that runs an op on a
// backend through Exec, and the error measures.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "ops/exec.h"

namespace exode::testing {

// A dense tensor with its own memory (and a spare line past the end, like device buffers).
class HostTensor {
 public:
  HostTensor(DType dtype, Shape shape)
      : dtype_(dtype),
        shape_(shape),
        bytes_(static_cast<size_t>(shape.elements()) * dtype_bytes(dtype) + 64) {}

  TensorView view() { return dense_view(bytes_.data(), dtype_, shape_); }
  ConstTensorView cview() const { return dense_view(bytes_.data(), dtype_, shape_); }
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
  template <class T>
  T at(int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void put(int64_t i, T value) {
    std::memcpy(bytes_.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  DType dtype_;
  Shape shape_;
  std::vector<std::byte> bytes_;
};

// Runs one op on the reference or CPU table with exactly the scratch that plan mode counted.
class OpRunner {
 public:
  explicit OpRunner(Backend backend, int32_t threads = 2) {
    device_ = open_device({.name = "cpu", .threads = threads}).value();
    table_ = backend == Backend::kRef ? ref_ops(device_->caps()) : cpu_ops(device_->caps());
  }
  template <class Op>
  void operator()(const Op& op) {
    Arena counting = Arena::counting();
    Exec(Exec::Mode::kPlan, table_, device_->stream(), counting)(op);
    std::vector<std::byte> memory(counting.peak_bytes() + 64);
    auto* aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    Arena arena = Arena::over({aligned, counting.peak_bytes()});
    Exec(Exec::Mode::kRun, table_, device_->stream(), arena)(op);
  }
  Device& device() { return *device_; }
  const OpTable& table() const { return table_; }

 private:
  std::unique_ptr<Device> device_;
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

}  // namespace exode::testing
