// Reads device layouts back to f32, written from the description in tensor/weight.h and sharing
// nothing with the packers.
#pragma once

#include <cstdint>
#include <cstring>
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

inline int unpack_int4_code(const WeightView& w, int32_t n, int32_t k) {
  const auto* block = w.codes.row<uint8_t>(n) + k / kInt4Block * (kInt4Block / 2);
  uint32_t word = 0;
  std::memcpy(&word, block + k % 16 * 4, sizeof(word));
  return static_cast<int>(word >> (4 * (k % kInt4Block / 16)) & 15u);
}

inline std::vector<float> unpack(const WeightView& w) {  // [rows, cols]
  std::vector<float> out;
  for (int32_t n = 0; n < w.rows; ++n) {
    for (int32_t k = 0; k < w.cols; ++k) {
      if (w.layout == WeightLayout::kDense) {
        out.push_back(unpack_dense(w, n, k));
      } else if (w.layout == WeightLayout::kFp8Block) {
        out.push_back(unpack_dense(w, n, k) * w.scales.row<float>(n / w.group)[k / w.group]);
      } else {
        const int zero = w.zeros.empty() ? 8 : w.zeros.row<uint8_t>(n)[k / w.group];
        out.push_back(w.scales.row<float>(n)[k / w.group] *
                      static_cast<float>(unpack_int4_code(w, n, k) - zero));
      }
    }
  }
  return out;
}

}  // namespace exode::test
