#include "weights/pack.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace exode {
namespace {

uint32_t word(const std::vector<std::byte>& bytes, size_t index) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + index * 4, sizeof(value));
  return value;
}

TEST(Pack, PlacesInput16jPlusIInNibbleJOfWordI) {
  for (size_t k = 0; k < kInt4Block; ++k) {
    std::array<uint8_t, kInt4Block> codes{};
    codes[k] = 13;
    std::vector<std::byte> out(64);
    pack_int4_block(codes, out.data());
    for (size_t w = 0; w < 16; ++w) {
      EXPECT_EQ(word(out, w), w == k % 16 ? 13u << (4 * (k / 16)) : 0u) << k;
    }
  }
}

// A source whose block b of row r is 64 bytes of value 16 r + b.
HostWeight counted(int32_t rows, int32_t cols) {
  HostWeight weight;
  weight.layout = WeightLayout::kInt4Group;
  weight.rows = rows;
  weight.cols = cols;
  weight.group = 128;
  weight.codes.read = [](const Int4Codes&, const Int4Tile& tile) {
    for (int32_t i = 0; i < tile.count; ++i) {
      std::memset(tile.out + static_cast<size_t>(i) * tile.step, (tile.first + i) * 16 + tile.block,
                  64);
    }
  };
  return weight;
}

TEST(Pack, RowsOfAStripLieBlockByBlock) {
  const HostWeight weight = counted(16, 300);  // three blocks
  for (const int32_t strip : {1, 2, 8}) {
    std::vector<std::byte> out(8 * 3 * 64);
    pack_int4(weight, {.first = 4, .count = 8, .strip = strip}, out.data());
    for (int32_t row = 0; row < 8; ++row) {
      for (int32_t block = 0; block < 3; ++block) {
        const int32_t top = row - row % strip;
        const int32_t at = top * 3 * 64 + (block * strip + row % strip) * 64;
        for (const int32_t byte : {at, at + 63}) {
          EXPECT_EQ(static_cast<int>(out[static_cast<size_t>(byte)]), (4 + row) * 16 + block)
              << strip;
        }
      }
    }
    std::vector<std::byte> alone(3 * 64), placed(8 * 3 * 64);
    for (int32_t row = 0; row < 8; ++row) {
      pack_int4(weight, {.first = 4 + row, .count = 1}, alone.data());
      place_row(alone, row, strip, placed.data());
    }
    EXPECT_EQ(placed, out) << strip;
  }
}

TEST(Pack, GroupsOfAStripLieSideBySide) {
  std::vector<float> values;
  for (int32_t i = 0; i < 6 * 3; ++i) values.push_back(static_cast<float>(i));
  std::vector<float> out(4 * 3);
  pack_groups(std::span<const float>(values), 3, {.first = 2, .count = 4, .strip = 2}, out.data());
  EXPECT_EQ(out, (std::vector<float>{6, 9, 7, 10, 8, 11, 12, 15, 13, 16, 14, 17}));
  pack_groups(std::span<const float>(values), 3, {.first = 2, .count = 4, .strip = 1}, out.data());
  EXPECT_EQ(out, (std::vector<float>{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}));
}

TEST(Pack, RowBytes) {
  EXPECT_EQ(packed_row_bytes(WeightLayout::kDense, DType::kBF16, 7), 14u);
  EXPECT_EQ(packed_row_bytes(WeightLayout::kDense, DType::kF32, 7), 28u);
  EXPECT_EQ(packed_row_bytes(WeightLayout::kFp8Block, DType::kFp8E4M3, 7), 7u);
  EXPECT_EQ(packed_row_bytes(WeightLayout::kInt4Group, DType::kU8, 1), 64u);
  EXPECT_EQ(packed_row_bytes(WeightLayout::kInt8Group, DType::kU8, 129), 256u);
}

TEST(Dequantize, DenseRows) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  HostWeight weight;
  weight.rows = 3;
  weight.cols = 2;
  weight.dense = std::as_bytes(std::span(values));
  EXPECT_EQ(dequantize(weight), values);
  EXPECT_EQ(dequantize_rows(weight, 1, 1), (std::vector<float>{3, 4}));
}

}  // namespace
}  // namespace exode
