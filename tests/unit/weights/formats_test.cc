#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/half.h"
#include "unit/weights/load_helper.h"
#include "unit/weights/unpack.h"
#include "unit/weights/writer.h"

namespace exode {
namespace {

using nlohmann::json;
using test::LoadedLinear;
using test::SafetensorsWriter;
using test::TestFolder;
using test::unpack;
using testing::HasSubstr;

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
std::vector<uint32_t> pack_along_cols(int64_t rows, int64_t cols, const Nibbles& value,
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
std::vector<uint32_t> pack_along_rows(int64_t rows, int64_t cols, const Nibbles& value) {
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

constexpr std::array<int, 8> kInOrder{0, 1, 2, 3, 4, 5, 6, 7};

std::vector<uint16_t> scales_f16(const Int4Case& c) {  // [groups, rows]
  std::vector<uint16_t> scales;
  for (int32_t g = 0; g < c.groups(); ++g) {
    for (int32_t n = 0; n < c.rows; ++n) scales.push_back(float_to_f16(c.scale(n, g)));
  }
  return scales;
}

void add_gptq(SafetensorsWriter& writer, const std::string& module, const Int4Case& c,
              int stored_offset) {
  writer.add(module + ".qweight", "I32", {c.cols / 8, c.rows},
             pack_along_rows(c.cols, c.rows, [&](int64_t k, int64_t n) {
               return c.code(static_cast<int32_t>(n), static_cast<int32_t>(k));
             }));
  writer.add(module + ".qzeros", "I32", {c.groups(), (c.rows + 7) / 8},
             pack_along_cols(c.groups(), c.rows, [&](int64_t g, int64_t n) {
               return c.zero(static_cast<int32_t>(n), static_cast<int32_t>(g)) + stored_offset;
             }, kInOrder));
  writer.add(module + ".scales", "F16", {c.groups(), c.rows}, scales_f16(c));
}

json gptq_config(bool sym) {
  return {{"quantization_config",
           {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"sym", sym}}}};
}

TEST(GptqInt4, ZeroIsStoredMinusOneAndReaches16) {
  const Int4Case c{.zero_low = 1, .zero_high = 16};
  SafetensorsWriter writer;
  add_gptq(writer, "m", c, -1);
  const TestFolder folder("gptq_zero16");
  folder.write_checkpoint(gptq_config(false), writer);
  const LoadedLinear linear(folder.path(), "m", c.rows, c.cols);
  ASSERT_EQ(linear.loaded.error, "");
  EXPECT_EQ(linear.view.layout, WeightLayout::kInt4Group);
  EXPECT_EQ(unpack(linear.view), c.expected());
}

}  // namespace
}  // namespace exode
