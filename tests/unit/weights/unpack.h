// Reads device layouts back to f32, written from the description in tensor/weight.h and sharing
// nothing with the packers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/half.h"
#include "tensor/weight.h"

namespace exode::test {

inline float unpack_dense(const WeightView& w, int32_t n, int32_t k) {
  switch (w.codes.dtype) {
    case DType::kF32:
      return w.codes.row<float>(n)[k];
    case DType::kF16:
      return f16_to_float(w.codes.row<uint16_t>(n)[k]);
    case DType::kBF16:
      return bf16_to_float(w.codes.row<uint16_t>(n)[k]);
    default:
      return fp8_e4m3_to_float(w.codes.row<uint8_t>(n)[k]);
  }
}

// Byte `at` of row n, and its scale or zero of group g, as strips have them.
inline uint8_t code_byte(const WeightView& w, int32_t n, int32_t at) {
  const int32_t in_strip = n % w.strip;
  return w.codes.row<uint8_t>(n - in_strip)[(at / 64 * w.strip + in_strip) * 64 + at % 64];
}
template <class T>
T group_value(const WeightView& w, const ConstTensorView& values, int32_t n, int32_t g) {
  const int32_t in_strip = n % w.strip;
  return values.row<T>(n - in_strip)[g * w.strip + in_strip];
}

inline int unpack_int4_code(const WeightView& w, int32_t n, int32_t k) {
  const int32_t nibble = k % kInt4Block / 16;
  const int byte = code_byte(w, n, k / kInt4Block * 64 + k % 16 * 4 + nibble / 2);
  return nibble % 2 == 0 ? byte & 15 : byte >> 4;
}

inline float unpack_at(const WeightView& w, int32_t n, int32_t k) {
  switch (w.layout) {
    case WeightLayout::kDense:
      return unpack_dense(w, n, k);
    case WeightLayout::kFp8Block:
      return unpack_dense(w, n, k) * w.scales.row<float>(n / w.group)[k / w.group];
    case WeightLayout::kInt8Group:
      return group_value<float>(w, w.scales, n, k / w.group) *
             static_cast<float>(code_byte(w, n, k) - 128);
    case WeightLayout::kInt4Group: {
      const int zero = w.zeros.empty() ? 8 : group_value<uint8_t>(w, w.zeros, n, k / w.group);
      return group_value<float>(w, w.scales, n, k / w.group) *
             static_cast<float>(unpack_int4_code(w, n, k) - zero);
    }
  }
  return 0;
}

inline std::vector<float> unpack(const WeightView& w) {  // [rows, cols]
  std::vector<float> out;
  for (int32_t n = 0; n < w.rows; ++n) {
    for (int32_t k = 0; k < w.cols; ++k) out.push_back(unpack_at(w, n, k));
  }
  return out;
}

}  // namespace exode::test
