#include "weights/pack.h"

#include <gtest/gtest.h>

#include <cstring>

namespace exode {
namespace {

uint32_t word(const std::vector<std::byte>& bytes, size_t index) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + index * 4, sizeof(value));
  return value;
}

TEST(Pack, PlacesInput16jPlusIInNibbleJOfWordI) {
  for (size_t k = 0; k < 256; ++k) {
    std::vector<uint8_t> codes(256, 0);
    codes[k] = 13;
    std::vector<std::byte> out(packed_row_bytes(WeightLayout::kInt4Group, DType::kU8, 256));
    ASSERT_EQ(out.size(), 128u);
    pack_int4_row(codes, out.data());
    for (size_t w = 0; w < 32; ++w) {
      const bool here = w == k / 128 * 16 + k % 16;
      EXPECT_EQ(word(out, w), here ? 13u << (4 * (k % 128 / 16)) : 0u) << k;
    }
  }
}

TEST(Pack, PadsAShortBlockWith8) {
  const std::vector<uint8_t> codes(130, 1);
  std::vector<std::byte> out(packed_row_bytes(WeightLayout::kInt4Group, DType::kU8, 130));
  ASSERT_EQ(out.size(), 128u);
  pack_int4_row(codes, out.data());
  for (size_t w = 0; w < 16; ++w) EXPECT_EQ(word(out, w), 0x11111111u);
  EXPECT_EQ(word(out, 16), 0x88888881u);
  EXPECT_EQ(word(out, 17), 0x88888881u);
  for (size_t w = 18; w < 32; ++w) EXPECT_EQ(word(out, w), 0x88888888u);
}

TEST(Pack, RowsWithAndWithoutPoolAreTheSame) {
  HostWeight weight;
  weight.layout = WeightLayout::kInt4Group;
  weight.rows = 300;
  weight.cols = 160;
  weight.group = 32;
  for (int32_t i = 0; i < weight.rows * weight.cols; ++i) {
    weight.codes.push_back(static_cast<uint8_t>(i * 7 % 16));
  }
  ThreadPool pool(3);
  std::vector<std::byte> alone(290 * 128), pooled(290 * 128);
  pack_int4_rows(weight, 5, nullptr, alone);
  pack_int4_rows(weight, 5, &pool, pooled);
  EXPECT_EQ(alone, pooled);
  std::vector<std::byte> row(128);
  pack_int4_row({weight.codes.data() + 294 * 160, 160}, row.data());
  EXPECT_EQ(std::memcmp(row.data(), alone.data() + 289 * 128, 128), 0);
}

TEST(Pack, RowBytes) {
  EXPECT_EQ(packed_row_bytes(WeightLayout::kDense, DType::kBF16, 7), 14u);
  EXPECT_EQ(packed_row_bytes(WeightLayout::kDense, DType::kF32, 7), 28u);
  EXPECT_EQ(packed_row_bytes(WeightLayout::kFp8Block, DType::kFp8E4M3, 7), 7u);
  EXPECT_EQ(packed_row_bytes(WeightLayout::kInt4Group, DType::kU8, 1), 64u);
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
