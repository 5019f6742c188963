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

void pack_block(const uint8_t* codes, std::byte* out) {
  std::array<uint32_t, kWords> words{};
  for (size_t j = 0; j < 8; ++j) {
    for (size_t i = 0; i < kWords; ++i) {
      words[i] |= static_cast<uint32_t>(codes[kWords * j + i]) << (4 * j);
    }
  }
  std::memcpy(out, words.data(), kBlockBytes);
}

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
    case WeightLayout::kInt4Group:
      for (size_t k = 0; k < cols; ++k) {
        const size_t g = row * groups + k / group;
        const int zero = w.has_zeros ? w.zeros[g] : kInt4PlainZero;
        out[k] = w.scales[g] * static_cast<float>(w.codes[row * cols + k] - zero);
      }
      return;
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

void pack_int4_row(std::span<const uint8_t> codes, std::byte* out) {
  size_t k = 0;
  for (; k + kBlock <= codes.size(); k += kBlock, out += kBlockBytes) {
    pack_block(codes.data() + k, out);
  }
  if (k == codes.size()) return;
  std::array<uint8_t, kBlock> tail;
  tail.fill(kInt4PlainZero);
  std::copy(codes.begin() + static_cast<std::ptrdiff_t>(k), codes.end(), tail.begin());
  pack_block(tail.data(), out);
}

void pack_int4_rows(const HostWeight& weight, int32_t first, ThreadPool* pool,
                    std::span<std::byte> out) {
  const auto cols = static_cast<size_t>(weight.cols);
  const size_t row_bytes = packed_row_bytes(weight.layout, weight.dtype, weight.cols);
  const auto count = static_cast<int32_t>(out.size() / row_bytes);
  EXODE_CHECK(first >= 0 && count <= weight.rows - first, "rows outside the matrix");
  for_ranges(pool, count, 64, [&](int32_t begin, int32_t end) {
    for (int32_t i = begin; i < end; ++i) {
      const auto row = static_cast<size_t>(first + i);
      pack_int4_row({weight.codes.data() + row * cols, cols},
                    out.data() + static_cast<size_t>(i) * row_bytes);
    }
  });
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
