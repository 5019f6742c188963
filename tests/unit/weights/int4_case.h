// Int4 matrices by formula and the packings of their checkpoint formats, written from the format
// descriptions and sharing nothing with the decoders.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/half.h"
#include "unit/weights/writer.h"

namespace exode::test {

// Codes, zeros and scales by formula, so that every expected value is computed in the test alone.
// All 16 codes occur, half of the scales are negative.
struct Int4Case {
  int32_t rows = 16, cols = 256, group = 128;
  int zero_low = 0, zero_high = 15;  // range of zero points

  int32_t groups() const { return (cols + group - 1) / group; }
  int code(int32_t n, int32_t k) const { return (n * 5 + k * 7 + k / 16) % 16; }
  int zero(int32_t n, int32_t g) const {
    return zero_low + (n * 3 + g * 5) % (zero_high - zero_low + 1);
  }
  float scale(int32_t n, int32_t g) const {  // exact in f16 and bf16
    const float magnitude = static_cast<float>(1 + (n + 3 * g) % 7) * 0x1p-8f;
    return (n + g) % 2 == 0 ? -magnitude : magnitude;
  }
  std::vector<float> expected() const {
    std::vector<float> w;
    for (int32_t n = 0; n < rows; ++n) {
      for (int32_t k = 0; k < cols; ++k) {
        const int32_t g = k / group;
        w.push_back(scale(n, g) * static_cast<float>(code(n, k) - zero(n, g)));
      }
    }
    return w;
  }
};

using Nibbles = std::function<int(int64_t row, int64_t col)>;

// I32 words [rows, cols/8], nibble i of word j of a row holding column 8j + order[i].
inline std::vector<uint32_t> pack_along_cols(int64_t rows, int64_t cols, const Nibbles& value,
                                             const std::array<int, 8>& order) {
  std::vector<uint32_t> words;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < (cols + 7) / 8; ++j) {
      uint32_t word = 0;
      for (size_t i = 0; i < 8; ++i) {
        const int64_t c = 8 * j + order[i];
        if (c < cols) word |= static_cast<uint32_t>(value(r, c) & 15) << (4 * i);
      }
      words.push_back(word);
    }
  }
  return words;
}

// I32 words [rows/8, cols], nibble i of word (j, c) holding row 8j + i.
inline std::vector<uint32_t> pack_along_rows(int64_t rows, int64_t cols, const Nibbles& value) {
  std::vector<uint32_t> words;
  for (int64_t j = 0; j < (rows + 7) / 8; ++j) {
    for (int64_t c = 0; c < cols; ++c) {
      uint32_t word = 0;
      for (int64_t i = 0; i < 8 && 8 * j + i < rows; ++i) {
        word |= static_cast<uint32_t>(value(8 * j + i, c) & 15) << (4 * i);
      }
      words.push_back(word);
    }
  }
  return words;
}

inline constexpr std::array<int, 8> kInOrder{0, 1, 2, 3, 4, 5, 6, 7};

inline std::vector<uint16_t> scales_f16(const Int4Case& c) {  // [groups, rows]
  std::vector<uint16_t> scales;
  for (int32_t g = 0; g < c.groups(); ++g) {
    for (int32_t n = 0; n < c.rows; ++n) scales.push_back(float_to_f16(c.scale(n, g)));
  }
  return scales;
}

// stored_offset: what is added to a zero before it is stored (-1 in GPTQ v1).
inline void add_gptq(SafetensorsWriter& writer, const std::string& module, const Int4Case& c,
                     int stored_offset) {
  writer.add(module + ".qweight", "I32", {c.cols / 8, c.rows},
             pack_along_rows(c.cols, c.rows, [&](int64_t k, int64_t n) {
               return c.code(static_cast<int32_t>(n), static_cast<int32_t>(k));
             }));
  writer.add(module + ".qzeros", "I32", {c.groups(), (c.rows + 7) / 8},
             pack_along_cols(
                 c.groups(), c.rows,
                 [&](int64_t g, int64_t n) {
                   return c.zero(static_cast<int32_t>(n), static_cast<int32_t>(g)) + stored_offset;
                 },
                 kInOrder));
  writer.add(module + ".scales", "F16", {c.groups(), c.rows}, scales_f16(c));
}

inline void add_awq(SafetensorsWriter& writer, const std::string& module, const Int4Case& c) {
  constexpr std::array<int, 8> kInterleaved{0, 2, 4, 6, 1, 3, 5, 7};
  writer.add(module + ".qweight", "I32", {c.cols, c.rows / 8},
             pack_along_cols(
                 c.cols, c.rows,
                 [&](int64_t k, int64_t n) {
                   return c.code(static_cast<int32_t>(n), static_cast<int32_t>(k));
                 },
                 kInterleaved));
  writer.add(module + ".qzeros", "I32", {c.groups(), c.rows / 8},
             pack_along_cols(
                 c.groups(), c.rows,
                 [&](int64_t g, int64_t n) {
                   return c.zero(static_cast<int32_t>(n), static_cast<int32_t>(g));
                 },
                 kInterleaved));
  writer.add(module + ".scales", "F16", {c.groups(), c.rows}, scales_f16(c));
}

enum class CtZeros : unsigned char { kAbsent, kStored };

inline void add_ct(SafetensorsWriter& writer, const std::string& module, const Int4Case& c,
                   CtZeros zeros) {
  writer.add(module + ".weight_packed", "I32", {c.rows, (c.cols + 7) / 8},
             pack_along_cols(
                 c.rows, c.cols,
                 [&](int64_t n, int64_t k) {
                   return c.code(static_cast<int32_t>(n), static_cast<int32_t>(k));
                 },
                 kInOrder));
  std::vector<uint16_t> scales;
  for (int32_t n = 0; n < c.rows; ++n) {
    for (int32_t g = 0; g < c.groups(); ++g) scales.push_back(float_to_bf16(c.scale(n, g)));
  }
  writer.add(module + ".weight_scale", "BF16", {c.rows, c.groups()}, scales);
  writer.add(module + ".weight_shape", "I64", {2}, std::vector<int64_t>{c.rows, c.cols});
  if (zeros == CtZeros::kAbsent) return;
  writer.add(module + ".weight_zero_point", "I32", {(c.rows + 7) / 8, c.groups()},
             pack_along_rows(c.rows, c.groups(), [&](int64_t n, int64_t g) {
               return c.zero(static_cast<int32_t>(n), static_cast<int32_t>(g));
             }));
}

}  // namespace exode::test
