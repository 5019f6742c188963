// Heads that are rounded while they load, embedding tables in host memory, and strips.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "unit/weights/int4_case.h"
#include "unit/weights/load_helper.h"
#include "unit/weights/unpack.h"
#include "weights/quantize.h"

namespace exode {
namespace {

using nlohmann::json;
using test::Int4Case;
using test::Loaded;
using test::LoadedLinear;
using test::SafetensorsWriter;
using test::TestFolder;
using test::unpack;
using testing::HasSubstr;

constexpr int32_t kRows = 64, kCols = 200;  // the second group is short

std::vector<float> head_values() {
  std::vector<float> values;
  for (int32_t i = 0; i < kRows * kCols; ++i) {
    values.push_back(bf16_to_float(float_to_bf16(std::sin(static_cast<float>(i)) * 0.1f)));
  }
  return values;
}

void write_head(const TestFolder& folder) {
  SafetensorsWriter writer;
  std::vector<uint16_t> bits;
  for (const float v : head_values()) bits.push_back(float_to_bf16(v));
  writer.add("lm_head.weight", "BF16", {kRows, kCols}, bits);
  folder.write_checkpoint(json::object(), writer);
}

struct Head {
  Head(const std::string& name, const LoadOptions& options) : folder(name) {
    write_head(folder);
    loaded.emplace(
        folder.path(),
        [&](WeightLoader& loader) -> Status {
          EXODE_ASSIGN(view, loader.head("lm_head", kRows, kCols));
          return Done{};
        },
        options);
  }
  TestFolder folder;
  WeightView view;
  std::optional<Loaded> loaded;
};

// Half a step of each group, of `steps` between zero and its largest magnitude.
void expect_rounded(const std::vector<float>& actual, float steps) {
  const std::vector<float> values = head_values();
  ASSERT_EQ(actual.size(), values.size());
  for (int32_t n = 0; n < kRows; ++n) {
    for (int32_t first = 0; first < kCols; first += kQuantizeGroup) {
      const int32_t last = std::min(first + kQuantizeGroup, kCols);
      float peak = 0;
      for (int32_t k = first; k < last; ++k) {
        peak = std::max(peak, std::abs(values[static_cast<size_t>(n * kCols + k)]));
      }
      for (int32_t k = first; k < last; ++k) {
        const auto at = static_cast<size_t>(n * kCols + k);
        // int4 has one step fewer on one side.
        const float bound = steps > 8 ? 0.501f : 1.001f;
        EXPECT_LE(std::abs(actual[at] - values[at]), bound * peak / steps) << n << ", " << k;
      }
    }
  }
}

TEST(Head, Int8KeepsHalfAStepOfEachGroup) {
  for (const int32_t strip : {1, 32}) {
    const Head head("head_int8", {.strip = strip, .head = HeadFormat::kInt8});
    ASSERT_EQ(head.loaded->error, "");
    EXPECT_EQ(head.view.layout, WeightLayout::kInt8Group);
    EXPECT_EQ(head.view.strip, strip);
    EXPECT_EQ(head.view.group, 128);
    expect_rounded(unpack(head.view), 127);
    EXPECT_THAT(head.loaded->head_report, HasSubstr("int8 from bf16, as asked"));
  }
}

TEST(Head, Int4KeepsAStepOfEachGroup) {
  for (const int32_t strip : {1, 32}) {
    const Head head("head_int4", {.strip = strip, .head = HeadFormat::kInt4});
    ASSERT_EQ(head.loaded->error, "");
    EXPECT_EQ(head.view.layout, WeightLayout::kInt4Group);
    EXPECT_TRUE(head.view.zeros.empty());
    expect_rounded(unpack(head.view), 8);
  }
}

TEST(Head, SmallHeadsStayAsTheyAreUnasked) {
  for (const HeadFormat format : {HeadFormat::kAuto, HeadFormat::kStored}) {
    const Head head("head_auto", {.head = format});
    ASSERT_EQ(head.loaded->error, "");
    EXPECT_EQ(head.view.layout, WeightLayout::kDense);
    EXPECT_EQ(unpack(head.view), head_values());
    EXPECT_EQ(head.loaded->head_report, "bf16, as stored");
  }
}

// Only planned: the header promises a large head, and nobody reads it.
TEST(Head, LargeHeadsOf16BitsBecomeInt8Unasked) {
  constexpr int32_t kLarge = 131072, kWidth = 512;
  for (const auto& [dtype, bytes, layout] :
       std::vector<std::tuple<std::string, int64_t, WeightLayout>>{
           {"BF16", 2, WeightLayout::kInt8Group}, {"F32", 4, WeightLayout::kDense}}) {
    const int64_t size = int64_t{kLarge} * kWidth * bytes;
    const TestFolder folder("head_large");
    folder.write("config.json", "{}");
    const json header{
        {"lm_head.weight",
         {{"dtype", dtype}, {"shape", {kLarge, kWidth}}, {"data_offsets", {0, size}}}}};
    const std::string image = test::safetensors_image(header.dump(), "");
    folder.write("model.safetensors", image);
    std::filesystem::resize_file(folder.path() + "/model.safetensors",
                                 image.size() + static_cast<size_t>(size));  // a sparse file
    const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
    const auto device = open_device({.name = "cpu", .threads = 1}).value();
    Arena arena = Arena::counting();
    WeightLoader loader(WeightLoader::Mode::kPlan, checkpoint, arena, *device);
    const auto head = loader.head("lm_head", kLarge, kWidth);
    ASSERT_TRUE(head.ok()) << head.error().message;
    EXPECT_EQ(head.value().layout, layout);
    EXPECT_THAT(loader.head_report(),
                HasSubstr(layout == WeightLayout::kInt8Group ? "int8 from bf16: 67 M weights"
                                                             : "f32, as stored"));
  }
}

TEST(Head, QuantisedHeadsAreNotConverted) {
  const Int4Case c{.zero_low = 8, .zero_high = 8};
  SafetensorsWriter writer;
  add_gptq(writer, "lm_head", c, -1);
  const TestFolder folder("head_gptq");
  folder.write_checkpoint(json::object(), writer);
  WeightView view;
  const Loaded loaded(folder.path(),
                      [&](WeightLoader& loader) -> Status {
                        EXODE_ASSIGN(view, loader.head("lm_head", c.rows, c.cols));
                        return Done{};
                      },
                      {.head = HeadFormat::kInt8});
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(unpack(view), c.expected());
  EXPECT_THAT(loaded.head_report, HasSubstr("int4, as stored; --head-dtype converts unquantised"));
}

TEST(Head, TiedTablesShareAMatrixWhereTheLookupReadsIt) {
  const TestFolder folder("head_tied");
  write_head(folder);
  Arena host = Arena::counting();  // says that the table goes to the host
  for (Arena* embedding : {static_cast<Arena*>(nullptr), &host}) {
    for (const HeadFormat format : {HeadFormat::kStored, HeadFormat::kInt8, HeadFormat::kInt4}) {
      WeightLoader::Tied tied;
      const Loaded loaded(folder.path(),
                          [&](WeightLoader& loader) -> Status {
                            EXODE_ASSIGN(tied, loader.tied_embedding("lm_head", kRows, kCols));
                            return Done{};
                          },
                          {.head = format, .embedding_arena = embedding});
      ASSERT_EQ(loaded.error, "");
      const bool shared = embedding == nullptr && format != HeadFormat::kInt4;
      EXPECT_EQ(tied.embedding.codes.data == tied.head.codes.data, shared);
      if (!shared) {
        EXPECT_EQ(unpack(tied.embedding), head_values());
      }
      EXPECT_EQ(loaded.host_bytes > 0, embedding != nullptr);
      if (format == HeadFormat::kInt8) {
        expect_rounded(unpack(tied.head), 127);
      }
    }
  }
}

TEST(Quantize, ZeroGroupsStayZero) {
  const std::vector<float> zeros(128);
  std::vector<std::byte> codes(128);
  float scale = 1;
  quantize_row(WeightLayout::kInt8Group, zeros, codes.data(), &scale);
  EXPECT_EQ(scale, 0.0f);
  EXPECT_EQ(codes, std::vector<std::byte>(128, std::byte{128}));
  quantize_row(WeightLayout::kInt4Group, zeros, codes.data(), &scale);
  EXPECT_EQ(codes[0], std::byte{0x88});
}

TEST(Quantize, TheLargestMagnitudeIsExact) {
  std::vector<float> values(128, 0.01f);
  values[5] = 0.75f;
  std::vector<std::byte> codes(128);
  float scale = 0;
  quantize_row(WeightLayout::kInt8Group, values, codes.data(), &scale);
  EXPECT_EQ(static_cast<int>(codes[5]), 255);
  EXPECT_FLOAT_EQ(scale * 127, 0.75f);
  quantize_row(WeightLayout::kInt4Group, values, codes.data(), &scale);
  EXPECT_FLOAT_EQ(scale * -8, 0.75f);
}

TEST(Strips, EveryFormatLandsInThem) {
  for (const int32_t strip : {2, 8, 32}) {
    for (const int32_t cols : {256, 320}) {
      const Int4Case c{.rows = 64, .cols = cols, .zero_low = 1, .zero_high = 15};
      SafetensorsWriter writer;
      add_gptq(writer, "gptq", c, -1);
      add_awq(writer, "awq", c);
      add_ct(writer, "ct", c, test::CtZeros::kStored);
      const TestFolder folder("strips");
      folder.write_checkpoint(
          {{"quantization_config", {{"quant_method", "gptq"}, {"group_size", 128}}}}, writer);
      for (const char* module : {"gptq", "awq", "ct"}) {
        const LoadedLinear linear(folder.path(), module, c.rows, c.cols, {.strip = strip});
        ASSERT_EQ(linear.loaded.error, "");
        EXPECT_EQ(linear.view.strip, strip);
        EXPECT_EQ(unpack(linear.view), c.expected()) << module << " strip " << strip;
      }
    }
  }
}

TEST(Strips, PartsMustBeWholeStrips) {
  const Int4Case c{.rows = 64, .zero_low = 8, .zero_high = 8};
  SafetensorsWriter writer;
  add_gptq(writer, "m", c, -1);
  const TestFolder folder("strip_parts");
  folder.write_checkpoint(json::object(), writer);
  const std::vector<float> all = c.expected();
  for (const auto& [first, count, strip] :
       std::vector<std::array<int32_t, 3>>{{8, 32, 32}, {8, 24, 1}, {3, 33, 1}}) {
    WeightView view;
    const Loaded loaded(
        folder.path(),
        [&](WeightLoader& loader) -> Status {
          EXODE_ASSIGN(view, loader.stacked({{"m", first, count, 64}, {"m", 0, 32, 64}}, c.cols));
          return Done{};
        },
        {.strip = 32});
    ASSERT_EQ(loaded.error, "");
    EXPECT_EQ(view.strip, strip);
    std::vector<float> expected(all.begin() + first * c.cols,
                                all.begin() + (first + count) * c.cols);
    expected.insert(expected.end(), all.begin(), all.begin() + 32 * c.cols);
    EXPECT_EQ(unpack(view), expected);
  }
}

}  // namespace
}  // namespace exode
