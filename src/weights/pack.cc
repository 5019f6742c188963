#include "weights/pack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/half.h"
#include "weights/decode.h"

namespace exode {
namespace {

constexpr size_t kBlock = kInt4Block;
constexpr size_t kBlockBytes = kBlock / 2;
constexpr size_t kWords = kBlock / 8;

float dense_value(const std::byte* data, DType dtype) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data, sizeof(bits));
  return dtype == DType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
}

void dequantize_row(const HostWeight& w, size_t row, float* out) {
  const auto cols = static_cast<size_t>(w.cols);
  const auto group = static_cast<size_t>(w.group);
  const auto groups = static_cast<size_t>(w.groups());
  switch (w.layout) {
    case WeightLayout::kDense: {
      const size_t size = dtype_bytes(w.dtype);
      const std::byte* data = w.dense.data() + row * cols * size;
      for (size_t k = 0; k < cols; ++k) out[k] = dense_value(data + k * size, w.dtype);
      return;
    }
    case WeightLayout::kInt4Group: {
      std::array<std::byte, kBlockBytes> block;
      for (size_t k = 0; k < cols; ++k) {
        if (k % kBlock == 0) {
          w.codes.read(w.codes, {.first = static_cast<int32_t>(row),
                                 .count = 1,
                                 .block = static_cast<int32_t>(k / kBlock),
                                 .out = block.data(),
                                 .step = 0});
        }
        const size_t g = row * groups + k / group;
        const int zero = w.has_zeros ? w.zeros[g] : kInt4PlainZero;
        const uint32_t word = load_u32(block.data() + k % kWords * 4);
        const auto code = static_cast<int>(word >> (k % kBlock / kWords * 4) & 15u);
        out[k] = w.scales[g] * static_cast<float>(code - zero);
      }
      return;
    }
    case WeightLayout::kInt8Group:
      EXODE_CHECK(false, "no checkpoint format stores int8 groups");
      return;
    case WeightLayout::kFp8Block:
      for (size_t k = 0; k < cols; ++k) {
        const float scale = w.scales[row / group * groups + k / group];
        const auto code = static_cast<uint8_t>(w.dense[row * cols + k]);
        out[k] = fp8_e4m3_to_float(code) * scale;
      }
      return;
  }
}

}  // namespace

size_t packed_row_bytes(WeightLayout layout, DType dtype, int32_t cols) {
  const auto k = static_cast<size_t>(cols);
  if (layout == WeightLayout::kInt4Group) return (k + kBlock - 1) / kBlock * kBlockBytes;
  if (layout == WeightLayout::kInt8Group) return (k + kInt8Block - 1) / kInt8Block * kInt8Block;
  if (layout == WeightLayout::kFp8Block) return k;
  return k * dtype_bytes(dtype);
}

void pack_int4_block(std::span<const uint8_t, kInt4Block> codes, std::byte* out) {
  std::array<uint32_t, kWords> words{};
  for (size_t j = 0; j < 8; ++j) {
    for (size_t i = 0; i < kWords; ++i) {
      words[i] |= static_cast<uint32_t>(codes[kWords * j + i]) << (4 * j);
    }
  }
  std::memcpy(out, words.data(), kBlockBytes);
}

void pack_int4(const HostWeight& weight, const PackedRows& rows, std::byte* out) {
  EXODE_CHECK(
      rows.first >= 0 && rows.count <= weight.rows - rows.first && rows.count % rows.strip == 0,
      "rows outside the matrix");
  const size_t row_bytes = packed_row_bytes(weight.layout, weight.dtype, weight.cols);
  const auto blocks = static_cast<int32_t>(row_bytes / kBlockBytes);
  const int32_t step = rows.strip > 1 ? rows.strip : rows.count;
  for (int32_t i = 0; i < rows.count; i += step) {
    std::byte* const strip = out + static_cast<size_t>(i) * row_bytes;
    const size_t block_step =
        rows.strip > 1 ? static_cast<size_t>(rows.strip) * kBlockBytes : kBlockBytes;
    for (int32_t block = 0; block < blocks; ++block) {
      weight.codes.read(weight.codes, {.first = rows.first + i,
                                       .count = step,
                                       .block = block,
                                       .out = strip + static_cast<size_t>(block) * block_step,
                                       .step = rows.strip > 1 ? kBlockBytes : row_bytes});
    }
  }
}

void place_row(std::span<const std::byte> codes, int32_t row, int32_t strip, std::byte* out) {
  const auto in_strip = static_cast<size_t>(row % strip), rows = static_cast<size_t>(strip);
  std::byte* to = out + static_cast<size_t>(row / strip) * rows * codes.size();
  for (size_t at = 0; at < codes.size(); at += kStripBytes) {
    std::memcpy(to + (at / kStripBytes * rows + in_strip) * kStripBytes, codes.data() + at,
                kStripBytes);
  }
}

std::vector<float> dequantize_rows(const HostWeight& weight, int32_t first, int32_t count) {
  const auto cols = static_cast<size_t>(weight.cols);
  std::vector<float> out(static_cast<size_t>(count) * cols);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    dequantize_row(weight, static_cast<size_t>(first) + i, out.data() + i * cols);
  }
  return out;
}

std::vector<float> dequantize(const HostWeight& weight) {
  return dequantize_rows(weight, 0, weight.rows);
}

}  // namespace exode
