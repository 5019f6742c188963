#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "unit/weights/int4_case.h"
#include "unit/weights/load_helper.h"
#include "unit/weights/unpack.h"

namespace exode {
namespace {

using nlohmann::json;
using test::CtZeros;
using test::Int4Case;
using test::LoadedLinear;
using test::SafetensorsWriter;
using test::TestFolder;
using test::unpack;
using testing::HasSubstr;

json gptq_config(const json& more) {
  json quantization{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}};
  quantization.update(more);
  return {{"quantization_config", quantization}};
}

json ct_config(int group_size) {
  return {{"text_config",
           {{"quantization_config",
             {{"quant_method", "compressed-tensors"},
              {"config_groups",
               {{"group_0",
                 {{"weights", {{"num_bits", 4}, {"group_size", group_size}}},
                  {"input_activations", nullptr}}}}}}}}}};
}

// Loads module "m" of a folder with these tensors.
LoadedLinear load(const std::string& name, const json& config, const SafetensorsWriter& writer,
                  const Int4Case& c) {
  const TestFolder folder(name);
  folder.write_checkpoint(config, writer);
  return LoadedLinear(folder.path(), "m", c.rows, c.cols);
}

void expect_int4(const LoadedLinear& linear, const Int4Case& c, bool has_zeros) {
  ASSERT_EQ(linear.loaded.error, "");
  EXPECT_EQ(linear.view.layout, WeightLayout::kInt4Group);
  EXPECT_EQ(!linear.view.zeros.empty(), has_zeros);
  EXPECT_EQ(unpack(linear.view), c.expected());
  EXPECT_TRUE(linear.loaded.unused.empty());
}

TEST(Int4Cases, CoverEveryCodeAndBothSigns) {
  const Int4Case c;
  std::set<int> codes;
  std::set<bool> negative;
  for (int32_t n = 0; n < c.rows; ++n) {
    for (int32_t k = 0; k < c.cols; ++k) codes.insert(c.code(n, k));
    for (int32_t g = 0; g < c.groups(); ++g) negative.insert(c.scale(n, g) < 0);
  }
  EXPECT_EQ(codes.size(), 16u);
  EXPECT_EQ(negative.size(), 2u);
}

TEST(GptqInt4, ZeroIsStoredMinusOneAndReaches16) {
  const Int4Case c{.rows = 32, .zero_low = 1, .zero_high = 16};
  SafetensorsWriter writer;
  add_gptq(writer, "m", c, -1);
  expect_int4(load("gptq16", gptq_config({{"sym", false}}), writer, c), c, true);
}

TEST(GptqInt4, ZeroIsStoredAsItIsInV2AndAutoRoundPacking) {
  const Int4Case c{.rows = 32, .zero_low = 0, .zero_high = 15};
  SafetensorsWriter writer;
  add_gptq(writer, "m", c, 0);
  for (const json& convention :
       {json{{"checkpoint_format", "gptq_v2"}},
        json{{"quant_method", "auto-round"}, {"packing_format", "auto_round"}},
        json{{"quant_method", "auto-round"}, {"packing_format", "auto_round:gptqmodel"}}}) {
    expect_int4(load("gptq_v2", gptq_config(convention), writer, c), c, true);
  }
}

TEST(GptqInt4, SymmetricNeedsNoZeros) {
  const Int4Case c{.zero_low = 8, .zero_high = 8};
  SafetensorsWriter writer;
  add_gptq(writer, "m", c, -1);
  expect_int4(load("gptq_sym", gptq_config({{"sym", true}}), writer, c), c, false);
  // Nothing says symmetric: zeros are kept.
  expect_int4(load("gptq_sym", json::object(), writer, c), c, true);
}

TEST(GptqInt4, SymmetricWithOtherZerosIsRefusedWhenTheDataIsRead) {
  const Int4Case c{.zero_low = 7, .zero_high = 8};
  SafetensorsWriter writer;
  add_gptq(writer, "m", c, -1);
  const LoadedLinear linear = load("gptq_lie", gptq_config({{"sym", true}}), writer, c);
  EXPECT_TRUE(linear.loaded.failed_loading);
  EXPECT_THAT(linear.loaded.error, HasSubstr("m: quantization_config says symmetric"));
}

TEST(GptqInt4, AsymmetricOverrideKeepsZeros) {
  const Int4Case c{.zero_low = 1, .zero_high = 16};
  SafetensorsWriter writer;
  add_gptq(writer, "m", c, -1);
  for (const char* key : {"m", ".*anything.*"}) {
    const json config = gptq_config({{"quant_method", "auto-round"},
                                     {"sym", true},
                                     {"extra_config", {{key, {{"sym", false}}}}}});
    expect_int4(load("gptq_override", config, writer, c), c, true);
  }
}

TEST(GptqInt4, GroupSizes) {
  for (const auto& [cols, group, stated] :
       std::vector<std::array<int32_t, 3>>{{256, 32, 32},
                                           {256, 64, 64},
                                           {512, 256, 256},
                                           {320, 128, 128},  // last: a short group
                                           {136, 128, 128},
                                           {96, 128, -1},
                                           {256, 256, -1},
                                           {64, 128, 128},
                                           {256, 64, 128}}) {  // the shapes win over the config
    const Int4Case c{.cols = cols, .group = group, .zero_low = 1, .zero_high = 16};
    SafetensorsWriter writer;
    add_gptq(writer, "m", c, -1);
    const LoadedLinear linear =
        load("gptq_group", gptq_config({{"group_size", stated}}), writer, c);
    SCOPED_TRACE(testing::Message() << cols << " / " << group);
    expect_int4(linear, c, true);
    EXPECT_EQ(linear.view.codes.cols(), (cols + 127) / 128 * 64);
  }
}

TEST(GptqInt4, PaddingCodesAre8) {
  const Int4Case c{.rows = 8, .cols = 96, .zero_low = 1, .zero_high = 16};
  SafetensorsWriter writer;
  add_gptq(writer, "m", c, -1);
  const LoadedLinear linear = load("gptq_pad", gptq_config(json::object()), writer, c);
  ASSERT_EQ(linear.loaded.error, "");
  for (int32_t k = 96; k < 128; ++k) EXPECT_EQ(test::unpack_int4_code(linear.view, 3, k), 8);
}

std::vector<int32_t> group_index(int32_t cols, int32_t group) {
  std::vector<int32_t> index;
  for (int32_t k = 0; k < cols; ++k) index.push_back(k / group);
  return index;
}

TEST(GptqInt4, GroupIndexMustBeTrivial) {
  const Int4Case c{.zero_low = 1, .zero_high = 16};
  std::vector<int32_t> index = group_index(c.cols, c.group);
  SafetensorsWriter trivial;
  add_gptq(trivial, "m", c, -1);
  trivial.add("m.g_idx", "I32", {c.cols}, index);
  expect_int4(load("gptq_gidx", gptq_config(json::object()), trivial, c), c, true);

  std::swap(index[3], index[200]);
  SafetensorsWriter permuted;
  add_gptq(permuted, "m", c, -1);
  permuted.add("m.g_idx", "I32", {c.cols}, index);
  const LoadedLinear linear = load("gptq_act_order", gptq_config(json::object()), permuted, c);
  EXPECT_THAT(linear.loaded.error, HasSubstr("m: group index 1 of input 3: activation order"));
}

TEST(AwqInt4, InterleavedWithPlainZeros) {
  for (const int32_t cols : {256, 320, 301}) {  // the last group may be short
    const Int4Case c{.rows = cols == 301 ? 296 : 32, .cols = cols};
    SafetensorsWriter writer;
    add_awq(writer, "m", c);
    const json config{
        {"quantization_config",
         {{"quant_method", "awq"}, {"w_bit", 4}, {"q_group_size", 128}, {"zero_point", true}}}};
    const LoadedLinear linear = load("awq", config, writer, c);
    expect_int4(linear, c, true);
    EXPECT_EQ(linear.loaded.formats, (std::map<std::string, int32_t>{{"awq_int4", 1}}));
  }
}

TEST(AwqInt4, SymmetricAutoRoundNeedsNoZeros) {
  const Int4Case c{.zero_low = 8, .zero_high = 8};
  SafetensorsWriter writer;
  add_awq(writer, "m", c);
  const json config = gptq_config(
      {{"quant_method", "auto-round"}, {"packing_format", "auto_round:auto_awq"}, {"sym", true}});
  expect_int4(load("awq_sym", config, writer, c), c, false);
}

TEST(CtInt4, SymmetricAndAsymmetric) {
  for (const auto& [rows, cols, group] : std::vector<std::array<int32_t, 3>>{
           {16, 256, 32}, {13, 256, 128}, {16, 320, 128}, {8, 100, 128}}) {
    const Int4Case sym{.rows = rows, .cols = cols, .group = group, .zero_low = 8, .zero_high = 8};
    SafetensorsWriter writer;
    add_ct(writer, "m", sym, CtZeros::kAbsent);
    expect_int4(load("ct_sym", ct_config(group), writer, sym), sym, false);

    const Int4Case asym{.rows = rows, .cols = cols, .group = group};
    SafetensorsWriter with_zeros;
    add_ct(with_zeros, "m", asym, CtZeros::kStored);
    expect_int4(load("ct_asym", ct_config(group), with_zeros, asym), asym, true);
  }
}

TEST(CtInt4, ChannelStrategyIsOneGroup) {
  const Int4Case c{.cols = 320, .group = 384, .zero_low = 8, .zero_high = 8};
  SafetensorsWriter writer;
  add_ct(writer, "m", c, CtZeros::kAbsent);
  const LoadedLinear linear = load("ct_channel", ct_config(0), writer, c);
  expect_int4(linear, c, false);
  EXPECT_EQ(linear.view.group, 384);
}

TEST(CtInt4, WeightShapeIsChecked) {
  const Int4Case c{.cols = 252, .zero_low = 8, .zero_high = 8};  // as many words as 256 inputs
  SafetensorsWriter writer;
  add_ct(writer, "m", c, CtZeros::kAbsent);
  const Int4Case asked{.cols = 256};
  const LoadedLinear linear = load("ct_shape", ct_config(128), writer, asked);
  EXPECT_THAT(linear.loaded.error, HasSubstr("weight_shape says [16, 252], expected [16, 256]"));
}

TEST(Fp8Block, ScalesMultiplyBlocksOf128) {
  constexpr int32_t kRows = 200, kCols = 300;
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
  std::vector<float> expected;
  for (int32_t b = 0; b < 2 * 3; ++b) {
    scales.push_back(float_to_bf16(0.25f * static_cast<float>(b + 1)));
  }
  for (int32_t i = 0; i < kRows * kCols; ++i) {
    const auto code = static_cast<uint8_t>(i % 255 == 127 ? 0 : i % 255);  // no NaN
    codes.push_back(code);
    const int32_t block = i / kCols / 128 * 3 + i % kCols / 128;
    expected.push_back(fp8_e4m3_to_float(code) * 0.25f * static_cast<float>(block + 1));
  }
  SafetensorsWriter writer;
  writer.add("m.weight", "F8_E4M3", {kRows, kCols}, codes);
  writer.add("m.weight_scale_inv", "BF16", {2, 3}, scales);
  const TestFolder folder("fp8");
  folder.write_checkpoint({{"quantization_config", {{"quant_method", "fp8"}}}}, writer);
  const LoadedLinear linear(folder.path(), "m", kRows, kCols);
  ASSERT_EQ(linear.loaded.error, "");
  EXPECT_EQ(linear.view.layout, WeightLayout::kFp8Block);
  EXPECT_EQ(linear.view.group, 128);
  EXPECT_EQ(unpack(linear.view), expected);
}

TEST(Plain, KeepsTheDTypeOfTheFile) {
  const std::vector<float> values{1, -2, 0.5f, 3, -4, 6};
  std::vector<uint16_t> f16, bf16;
  for (const float v : values) {
    f16.push_back(float_to_f16(v));
    bf16.push_back(float_to_bf16(v));
  }
  SafetensorsWriter writer;
  writer.add("odd", "U8", {1}, std::vector<uint8_t>{1});  // makes every other offset unaligned
  writer.add("a.weight", "F32", {2, 3}, values);
  writer.add("b.weight", "F16", {2, 3}, f16);
  writer.add("c.weight", "BF16", {2, 3}, bf16);
  const TestFolder folder("plain");
  folder.write_checkpoint(json::object(), writer);
  for (const auto& [module, dtype] :
       std::map<std::string, DType>{{"a", DType::kF32}, {"b", DType::kF16}, {"c", DType::kBF16}}) {
    const LoadedLinear linear(folder.path(), module, 2, 3);
    ASSERT_EQ(linear.loaded.error, "");
    EXPECT_EQ(linear.view.codes.dtype, dtype);
    EXPECT_EQ(unpack(linear.view), values);
  }
}

struct Refusal {
  std::string name;
  json quantization;  // quantization_config
  std::function<void(SafetensorsWriter&)> tensors;
  std::string message;
};

const Int4Case kCase{.zero_low = 8, .zero_high = 8};

template <class T>
std::function<void(SafetensorsWriter&)> gptq_with(const std::string& name, const std::string& dtype,
                                                  const std::vector<int64_t>& shape) {
  return [=](SafetensorsWriter& writer) {
    add_gptq(writer, "m", kCase, -1);
    int64_t count = 1;
    for (const int64_t d : shape) count *= d;
    writer.add(name, dtype, shape, std::vector<T>(static_cast<size_t>(count)));
  };
}

std::vector<Refusal> int4_refusals() {
  const auto gptq = [](SafetensorsWriter& w) { add_gptq(w, "m", kCase, -1); };
  const auto ct = [](SafetensorsWriter& w) { add_ct(w, "m", kCase, CtZeros::kAbsent); };
  const json method{{"quant_method", "gptq"}};
  return {
      {"method", {{"quant_method", "quip"}}, gptq, "m: quant_method \"quip\" is not supported"},
      {"no_method", json::object(), gptq, "m: quant_method \"\" is not supported"},
      {"activations",
       {{"quant_method", "auto-round"}, {"act_bits", 8}},
       gptq,
       "m: activations are quantised to 8 bits"},
      {"module_activations",
       {{"quant_method", "auto-round"}, {"extra_config", {{"m", {{"act_bits", 4}}}}}},
       gptq,
       "m: activations are quantised to 4 bits"},
      {"ct_activations",
       {{"quant_method", "compressed-tensors"},
        {"config_groups", {{"g", {{"input_activations", {{"num_bits", 8}}}}}}}},
       ct,
       "m: input_activations of 8 bits"},
      {"bits8", method, gptq_with<int32_t>("m.qweight", "I32", {64, 16}),
       "m: quantised with 8 bits"},
      {"bits2", method, gptq_with<int32_t>("m.qweight", "I32", {16, 16}),
       "m: quantised with 2 bits"},
      {"bits3", method, gptq_with<int32_t>("m.qweight", "I32", {24, 16}),
       "m: quantised with 3 bits"},
      {"qweight_rows", method, gptq_with<int32_t>("m.qweight", "I32", {31, 16}),
       "tensor m.qweight is I32 [31, 16], expected I32 [32, 16]"},
      {"qweight_dtype", method, gptq_with<uint8_t>("m.qweight", "U8", {32, 16}),
       "tensor m.qweight is U8"},
      {"qweight_rank", method, gptq_with<int32_t>("m.qweight", "I32", {512}),
       "tensor m.qweight is"},
      {"qzeros", method, gptq_with<int32_t>("m.qzeros", "I32", {2, 3}), "tensor m.qzeros is"},
      {"scales_rank", method, gptq_with<float>("m.scales", "F32", {32}),
       "m: has qweight but no scales"},
      {"scales_dtype", method, gptq_with<int32_t>("m.scales", "I32", {2, 16}),
       "tensor m.scales is I32"},
      {"g_idx", method, gptq_with<int32_t>("m.g_idx", "I32", {255}), "tensor m.g_idx is"},
      {"group16", method,
       [](SafetensorsWriter& w) {
         add_gptq(w, "m", {.group = 16, .zero_low = 8, .zero_high = 8}, -1);
       },
       "m: groups of 16 inputs"},
      {"no_groups", method, gptq_with<float>("m.scales", "F32", {0, 16}),
       "tensor m.qzeros is I32 [2, 2], expected I32 [0, 2]"},
  };
}

std::vector<Refusal> other_refusals() {
  return {
      {"nvfp4",
       {{"quant_method", "compressed-tensors"}},
       [](SafetensorsWriter& w) {
         w.add("m.weight_packed", "U8", {16, 128}, std::vector<uint8_t>(16 * 128));
       },
       "m: weight_packed is U8 (NVFP4 or MXFP4)"},
      {"ct_bits8",
       {{"quant_method", "compressed-tensors"}},
       [](SafetensorsWriter& w) {
         w.add("m.weight_packed", "I32", {16, 64}, std::vector<int32_t>(16 * 64));
       },
       "m: quantised with 8 bits"},
      {"ct_no_scale",
       {{"quant_method", "compressed-tensors"}},
       [](SafetensorsWriter& w) {
         w.add("m.weight_packed", "I32", {16, 32}, std::vector<int32_t>(16 * 32));
       },
       "m: has weight_packed but no weight_scale"},
      {"fp8_tensor",
       {{"quant_method", "fp8"}},
       [](SafetensorsWriter& w) {
         w.add("m.weight", "F8_E4M3", {16, 256}, std::vector<uint8_t>(16 * 256));
         w.add("m.weight_scale", "F32", {1}, std::vector<float>{1});
       },
       "m: FP8 weights with weight_scale (per tensor or channel)"},
      {"fp8_block64",
       {{"quant_method", "fp8"}},
       [](SafetensorsWriter& w) {
         w.add("m.weight", "F8_E4M3", {16, 256}, std::vector<uint8_t>(16 * 256));
         w.add("m.weight_scale_inv", "F32", {1, 4}, std::vector<float>(4, 1));
       },
       "tensor m.weight_scale_inv is F32 [1, 4], expected F16, BF16 or F32 [1, 2]"},
      {"dtype", json::object(),
       [](SafetensorsWriter& w) {
         w.add("m.weight", "I8", {16, 256}, std::vector<uint8_t>(16 * 256));
       },
       "tensor m.weight is I8, which is none of the supported weight formats"},
      {"shape", json::object(),
       [](SafetensorsWriter& w) {
         w.add("m.weight", "F32", {256, 16}, std::vector<float>(16 * 256));
       },
       "tensor m.weight is F32 [256, 16], expected F16, BF16 or F32 [16, 256]"},
      {"missing", json::object(),
       [](SafetensorsWriter& w) { w.add("n.weight", "F32", {1}, std::vector<float>{1}); },
       "the checkpoint has no weights for m"},
  };
}

TEST(Formats, RefusalsNameTheModule) {
  std::vector<Refusal> refusals = int4_refusals();
  for (Refusal& refusal : other_refusals()) refusals.push_back(std::move(refusal));
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    SafetensorsWriter writer;
    refusal.tensors(writer);
    const LoadedLinear linear =
        load("refusal", {{"quantization_config", refusal.quantization}}, writer, kCase);
    EXPECT_THAT(linear.loaded.error, HasSubstr(refusal.message));
  }
}

}  // namespace
}  // namespace exode
