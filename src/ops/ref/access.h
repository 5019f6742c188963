// Element access for the reference kernels: any float type, one value at a time.
#pragma once

#include <cstring>

#include "base/half.h"
#include "tensor/weight.h"

namespace exode::ref {

inline double load(const ConstTensorView& t, int64_t row, int64_t col) {
  const std::byte* p =
      t.data + (row * t.row_stride + col) * static_cast<int64_t>(dtype_bytes(t.dtype));
  const auto read = [&](auto value) {
    std::memcpy(&value, p, sizeof(value));
    return value;
  };
  switch (t.dtype) {
    case DType::kF32:
      return read(float{});
    case DType::kF16:
      return f16_to_float(read(uint16_t{}));
    case DType::kBF16:
      return bf16_to_float(read(uint16_t{}));
    case DType::kFp8E4M3:
      return fp8_e4m3_to_float(read(uint8_t{}));
    case DType::kI32:
      return read(int32_t{});
    case DType::kI64:
      return static_cast<double>(read(int64_t{}));
    case DType::kU8:
      return read(uint8_t{});
  }
  return 0;
}

inline void store(const TensorView& t, int64_t row, int64_t col, double value) {
  std::byte* p = t.data + (row * t.row_stride + col) * static_cast<int64_t>(dtype_bytes(t.dtype));
  const auto write = [&](auto v) { std::memcpy(p, &v, sizeof(v)); };
  const auto narrow = static_cast<float>(value);
  switch (t.dtype) {
    case DType::kF32:
      return write(narrow);
    case DType::kF16:
      return write(float_to_f16(narrow));
    case DType::kBF16:
      return write(float_to_bf16(narrow));
    case DType::kFp8E4M3:
      return write(float_to_fp8_e4m3(narrow));
    case DType::kI32:
      return write(static_cast<int32_t>(value));
    case DType::kI64:
      return write(static_cast<int64_t>(value));
    case DType::kU8:
      return write(static_cast<uint8_t>(value));
  }
}

inline int32_t index_at(const ConstTensorView& t, int64_t i) {
  return static_cast<int32_t>(load(t, i, 0));
}

// W[n, k] of any layout.
inline double weight_at(const WeightView& w, int64_t n, int64_t k) {
  switch (w.layout) {
    case WeightLayout::kDense:
      return load(w.codes, n, k);
    case WeightLayout::kFp8Block:
      return load(w.codes, n, k) * load(w.scales, n / w.group, k / w.group);
    case WeightLayout::kInt8Group: {
      const int64_t in_strip = n % w.strip, top = n - in_strip, group = k / w.group;
      const int64_t byte = (k / kStripBytes * w.strip + in_strip) * kStripBytes + k % kStripBytes;
      return (load(w.codes, top, byte) - kInt8Zero) *
             load(w.scales, top, group * w.strip + in_strip);
    }
    case WeightLayout::kInt4Group: {
      const int64_t in_block = k % kInt4Block;
      const int64_t nibble = in_block / 16;
      const int64_t byte = k / kInt4Block * 64 + in_block % 16 * 4 + nibble / 2;
      const int code = static_cast<int>(load(w.codes, n, byte));
      const int value = nibble % 2 == 0 ? code & 15 : code >> 4;
      const double zero = w.zeros.empty() ? 8 : load(w.zeros, n, k / w.group);
      return (value - zero) * load(w.scales, n, k / w.group);
    }
  }
  return 0;
}

}  // namespace exode::ref
