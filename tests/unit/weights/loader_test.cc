#include "weights/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/weights/int4_case.h"
#include "unit/weights/load_helper.h"
#include "unit/weights/unpack.h"

namespace exode {
namespace {

using nlohmann::json;
using test::CtZeros;
using test::Int4Case;
using test::Loaded;
using test::SafetensorsWriter;
using test::TestFolder;
using test::unpack;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> rows_of(const std::vector<float>& matrix, const RowRange& range, int32_t cols) {
  return {matrix.begin() + range.first * cols, matrix.begin() + (range.first + range.count) * cols};
}

std::vector<float> concat(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Stack {
  Stack(const TestFolder& folder, const std::vector<RowRange>& parts, int32_t cols)
      : loaded(folder.path(), [&](WeightLoader& loader) -> Status {
          EXODE_ASSIGN(view, loader.stacked(parts, cols));
          return Done{};
        }) {
    if (loaded.error.empty()) values = unpack(view);
  }
  WeightView view;
  Loaded loaded;
  std::vector<float> values;
};

void add_f32(SafetensorsWriter& writer, const std::string& name, int32_t rows, int32_t cols,
             float start) {
  std::vector<float> values;
  for (int32_t i = 0; i < rows * cols; ++i) values.push_back(start + static_cast<float>(i));
  writer.add(name, "F32", {rows, cols}, values);
}

TEST(Stacked, DeinterleavesRangesOfOneModule) {
  const Int4Case c{.rows = 32, .zero_low = 1, .zero_high = 16};
  SafetensorsWriter writer;
  add_gptq(writer, "q", c, -1);
  const TestFolder folder("deinterleave");
  folder.write_checkpoint(json::object(), writer);
  std::vector<RowRange> parts;  // [q8 ‖ gate8] twice → q8 q8 gate8 gate8
  std::vector<float> expected;
  for (const int32_t first : {0, 16, 8, 24}) {
    parts.push_back({.module = "q", .first = first, .count = 8, .module_rows = 32});
    expected = concat(std::move(expected), rows_of(c.expected(), parts.back(), c.cols));
  }
  const Stack stack(folder, parts, c.cols);
  ASSERT_EQ(stack.loaded.error, "");
  EXPECT_EQ(stack.view.layout, WeightLayout::kInt4Group);
  EXPECT_EQ(stack.values, expected);
  EXPECT_EQ(stack.loaded.formats, (std::map<std::string, int32_t>{{"gptq_int4", 1}}));
}

TEST(Stacked, ZerosAppearWhenAnyPartHasThem) {
  const Int4Case sym{.zero_low = 8, .zero_high = 8};
  const Int4Case asym{.zero_low = 0, .zero_high = 15};
  SafetensorsWriter writer;
  add_ct(writer, "a", sym, CtZeros::kAbsent);
  add_ct(writer, "b", asym, CtZeros::kStored);
  const TestFolder folder("zeros");
  folder.write_checkpoint(json::object(), writer);
  const RowRange a{.module = "a", .first = 0, .count = 16, .module_rows = 16};
  const RowRange b{.module = "b", .first = 0, .count = 16, .module_rows = 16};
  for (const auto& [first, second] : {std::pair(a, b), std::pair(b, a)}) {
    const Stack stack(folder, {first, second}, sym.cols);
    ASSERT_EQ(stack.loaded.error, "");
    EXPECT_EQ(stack.view.layout, WeightLayout::kInt4Group);
    EXPECT_FALSE(stack.view.zeros.empty());
    const auto& expected_first = first.module == "a" ? sym : asym;
    const auto& expected_second = first.module == "a" ? asym : sym;
    EXPECT_EQ(stack.values, concat(expected_first.expected(), expected_second.expected()));
  }
  const Stack alone(folder, {a}, sym.cols);
  EXPECT_TRUE(alone.view.zeros.empty());
}

TEST(Stacked, MixedPartsBecomeF32) {
  const Int4Case g128{.zero_low = 1, .zero_high = 16};
  const Int4Case g64{.group = 64, .zero_low = 1, .zero_high = 16};
  SafetensorsWriter writer;
  add_gptq(writer, "g128", g128, -1);
  add_gptq(writer, "g64", g64, -1);
  add_f32(writer, "dense.weight", 3, 256, 0.5f);
  const TestFolder folder("mixed");
  folder.write_checkpoint(json::object(), writer);
  const RowRange a{.module = "g128", .first = 4, .count = 12, .module_rows = 16};
  const RowRange b{.module = "g64", .first = 0, .count = 16, .module_rows = 16};
  const RowRange d{.module = "dense", .first = 1, .count = 2, .module_rows = 3};

  const Stack groups(folder, {a, b}, 256);
  ASSERT_EQ(groups.loaded.error, "");
  EXPECT_EQ(groups.view.layout, WeightLayout::kDense);
  EXPECT_EQ(groups.view.codes.dtype, DType::kF32);
  EXPECT_EQ(groups.values, concat(rows_of(g128.expected(), a, 256), g64.expected()));

  const Stack dense(folder, {d, a}, 256);
  ASSERT_EQ(dense.loaded.error, "");
  EXPECT_EQ(dense.view.codes.dtype, DType::kF32);
  EXPECT_EQ(dense.values[0], 256.5f);
  EXPECT_EQ(std::vector<float>(dense.values.begin() + 512, dense.values.end()),
            rows_of(g128.expected(), a, 256));
}

void add_fp8(SafetensorsWriter& writer, const std::string& module, int32_t rows, int32_t cols) {
  std::vector<uint8_t> codes;
  for (int32_t i = 0; i < rows * cols; ++i) codes.push_back(static_cast<uint8_t>(i * 31 % 120));
  std::vector<float> scales;
  const int32_t blocks = (rows + 127) / 128 * ((cols + 127) / 128);
  for (int32_t b = 0; b < blocks; ++b) scales.push_back(static_cast<float>(b + 1));
  writer.add(module + ".weight", "F8_E4M3", {rows, cols}, codes);
  writer.add(module + ".weight_scale_inv", "F32", {(rows + 127) / 128, (cols + 127) / 128}, scales);
}

TEST(Stacked, Fp8StaysFp8WhenBlocksStayWhole) {
  SafetensorsWriter writer;
  add_fp8(writer, "w", 300, 200);
  const TestFolder folder("fp8_stack");
  folder.write_checkpoint(json::object(), writer);
  const RowRange all{.module = "w", .first = 0, .count = 300, .module_rows = 300};
  const Stack whole(folder, {all}, 200);
  ASSERT_EQ(whole.loaded.error, "");

  const RowRange second{.module = "w", .first = 128, .count = 128, .module_rows = 300};
  const RowRange first{.module = "w", .first = 0, .count = 128, .module_rows = 300};
  const RowRange tail{.module = "w", .first = 256, .count = 44, .module_rows = 300};
  const auto expect = [&](const std::vector<RowRange>& parts, WeightLayout layout) {
    std::vector<float> expected;
    for (const RowRange& part : parts) {
      expected = concat(std::move(expected), rows_of(whole.values, part, 200));
    }
    const Stack stack(folder, parts, 200);
    ASSERT_EQ(stack.loaded.error, "");
    EXPECT_EQ(stack.view.layout, layout);
    EXPECT_EQ(stack.values, expected);
  };
  expect({second, first}, WeightLayout::kFp8Block);
  expect({second, first, tail}, WeightLayout::kFp8Block);
  expect({tail, first}, WeightLayout::kDense);
  expect({{.module = "w", .first = 64, .count = 128, .module_rows = 300}}, WeightLayout::kDense);
}

TEST(Stacked, DensePartsKeepTheirDType) {
  SafetensorsWriter writer;
  writer.add("a.weight", "BF16", {2, 2}, std::vector<uint16_t>{0x3f80, 0x4000, 0x4040, 0x4080});
  writer.add("b.weight", "BF16", {1, 2}, std::vector<uint16_t>{0xbf80, 0xc000});
  const TestFolder folder("dense_stack");
  folder.write_checkpoint(json::object(), writer);
  const Stack stack(folder,
                    {{.module = "b", .first = 0, .count = 1, .module_rows = 1},
                     {.module = "a", .first = 1, .count = 1, .module_rows = 2}},
                    2);
  ASSERT_EQ(stack.loaded.error, "");
  EXPECT_EQ(stack.view.codes.dtype, DType::kBF16);
  EXPECT_THAT(stack.values, ElementsAre(-1, -2, 3, 4));
}

TEST(Loader, VectorsOfEveryFloatType) {
  SafetensorsWriter writer;
  writer.add("f64", "F64", {2}, std::vector<double>{1.5, -2});
  writer.add("f32", "F32", {1, 2}, std::vector<float>{1.5f, -2});
  writer.add("f16", "F16", {2, 1, 1}, std::vector<uint16_t>{0x3e00, 0xc000});
  writer.add("bf16", "BF16", {2}, std::vector<uint16_t>{0x3fc0, 0xc000});
  writer.add("i32", "I32", {2}, std::vector<int32_t>{1, 2});
  const TestFolder folder("vectors");
  folder.write_checkpoint(json::object(), writer);
  std::map<std::string, ConstTensorView> views;
  const Loaded loaded(folder.path(), [&](WeightLoader& loader) -> Status {
    for (const char* name : {"f64", "f32", "f16", "bf16"}) {
      EXODE_ASSIGN(views[name], loader.vector_f32(name, 2));
    }
    views["constant"] = loader.constant_f32(std::vector<float>{1.5f, -2});
    return Done{};
  });
  ASSERT_EQ(loaded.error, "");
  for (const auto& [name, view] : views) {
    EXPECT_EQ(view.shape, (Shape{2})) << name;
    EXPECT_EQ(view.row<float>(0)[0], 1.5f) << name;
    EXPECT_EQ(view.row<float>(1)[0], -2.0f) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % Arena::kAlign, 0u) << name;
  }
  EXPECT_THAT(loaded.unused, ElementsAre("i32"));
  EXPECT_EQ(loaded.bytes_consumed, 16u + 8u + 4u + 4u);

  const auto error_of = [&](const std::string& name, int32_t count) {
    return Loaded(folder.path(),
                  [&](WeightLoader& loader) -> Status {
                    EXODE_TRY(loader.vector_f32(name, count));
                    return Done{};
                  })
        .error;
  };
  EXPECT_THAT(error_of("i32", 2), HasSubstr("tensor i32 is I32 [2], expected 2 floats"));
  EXPECT_THAT(error_of("f32", 3), HasSubstr("tensor f32 is F32 [1, 2], expected 3 floats"));
  EXPECT_THAT(error_of("none", 3), HasSubstr("tensor none is missing"));
}

TEST(Loader, PlainMatrixFlattensLeadingDimensions) {
  SafetensorsWriter writer;
  writer.add("experts", "F16", {2, 1, 3},
             std::vector<uint16_t>{0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600});
  writer.add("codes", "I32", {2, 3}, std::vector<int32_t>(6));
  const TestFolder folder("plain_matrix");
  folder.write_checkpoint(json::object(), writer);
  WeightView view;
  const auto error_of = [&](const std::string& name, int32_t rows, int32_t cols) {
    return Loaded(folder.path(),
                  [&](WeightLoader& loader) -> Status {
                    EXODE_ASSIGN(view, loader.plain_matrix(name, rows, cols));
                    return Done{};
                  })
        .error;
  };
  EXPECT_THAT(error_of("experts", 3, 2), HasSubstr("expected BF16, F16 or F32 with 3 rows of 2"));
  EXPECT_THAT(error_of("experts", 3, 3), HasSubstr("tensor experts is F16 [2, 1, 3]"));
  EXPECT_THAT(error_of("codes", 2, 3), HasSubstr("tensor codes is I32"));
  EXPECT_THAT(error_of("none", 2, 3), HasSubstr("tensor none is missing"));

  const Loaded loaded(folder.path(), [&](WeightLoader& loader) -> Status {
    EXPECT_TRUE(loader.has_tensor("experts"));
    EXPECT_FALSE(loader.has_tensor("none"));
    EXPECT_FALSE(loader.has_module("experts"));
    EXODE_ASSIGN(view, loader.plain_matrix("experts", 2, 3));
    return Done{};
  });
  EXPECT_EQ(view.codes.dtype, DType::kF16);
  EXPECT_THAT(unpack(view), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Loader, ProgressGrowsToTheBytesConsumed) {
  SafetensorsWriter writer;
  add_f32(writer, "a.weight", 2, 4, 0);
  add_f32(writer, "b.weight", 2, 4, 0);
  const TestFolder folder("progress");
  folder.write_checkpoint(json::object(), writer);
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  const auto device = open_device({.name = "cpu", .threads = 1}).value();
  Arena arena = Arena::counting();
  std::vector<uint64_t> steps;
  WeightLoader loader(WeightLoader::Mode::kPlan, checkpoint, arena, *device,
                      {.progress = [&](uint64_t bytes) { steps.push_back(bytes); }});
  ASSERT_TRUE(loader.linear("a", 2, 4).ok());
  ASSERT_TRUE(loader.linear("b", 2, 4).ok());
  ASSERT_TRUE(loader.linear("b", 2, 4).ok());  // counted once
  EXPECT_THAT(steps, ElementsAre(32, 64));
  EXPECT_EQ(loader.bytes_consumed(), 64u);
}

}  // namespace
}  // namespace exode
