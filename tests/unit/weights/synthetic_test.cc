#include "weights/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "unit/weights/unpack.h"
#include "weights/loader.h"

namespace exode {
namespace {

using ::testing::HasSubstr;

Checkpoint checkpoint(const std::string& name) {
  Result<Checkpoint> result = Checkpoint::synthetic(name);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(result).value();
}

// Weights that tensors under `prefix` stand for: eight in a word of codes, none beside them.
int64_t parameters(const Checkpoint& checkpoint, const std::string& prefix) {
  int64_t count = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.starts_with(prefix)) continue;
    if (name.ends_with(".scales") || name.ends_with(".qzeros")) continue;
    count += tensor.elements() * (name.ends_with(".qweight") ? 8 : 1);
  }
  return count;
}

TEST(Synthetic, UnknownNamesListTheKnownOnes) {
  const Result<Checkpoint> result = Checkpoint::synthetic("qwen9");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("qwen3.6-27b-int4"));
}

// The counts of the published checkpoints.
TEST(Synthetic, ParameterCountsAreThePublishedOnes) {
  const Checkpoint dense = checkpoint("qwen3.6-27b-int4");
  EXPECT_EQ(parameters(dense, "model.") + parameters(dense, "lm_head"), 26'895'998'464);
  EXPECT_EQ(parameters(dense, "mtp."), 424'699'392);
  const Checkpoint small = checkpoint("qwen3.5-0.8b-bf16");
  EXPECT_EQ(parameters(small, "model."), 752'393'024);
  EXPECT_EQ(parameters(small, "mtp."), 20'452'864);
  EXPECT_EQ(small.find("lm_head.weight"), nullptr);
  const Checkpoint experts = checkpoint("qwen3.6-35b-a3b-int4");
  EXPECT_EQ(parameters(experts, "model.language_model.layers."), 33'643'489'920);
  EXPECT_EQ(parameters(experts, "mtp."), 844'640'768);
}

TEST(Synthetic, BytesAreThoseOfTheFilesAndNoneIsStored) {
  const Checkpoint c = checkpoint("qwen3.6-27b-int4");
  EXPECT_NEAR(static_cast<double>(c.file_bytes()), 18.0e9, 0.1e9);
  EXPECT_TRUE(c.is_synthetic());
  for (const auto& [name, tensor] : c.tensors()) ASSERT_TRUE(tensor.data.empty()) << name;
}

struct LoadedMatrix {
  explicit LoadedMatrix(const std::string& module, int32_t rows, int32_t cols) {
    const Checkpoint c = checkpoint("tiny-int4");
    Arena counting = Arena::counting();
    WeightLoader plan(WeightLoader::Mode::kPlan, c, counting, *device);
    EXPECT_TRUE(plan.linear(module, rows, cols).ok());
    memory = device->allocate(counting.peak_bytes(), "test").value();
    Arena arena = Arena::over(memory.bytes());
    WeightLoader load(WeightLoader::Mode::kLoad, c, arena, *device);
    const Result<WeightView> loaded = load.linear(module, rows, cols);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    view = loaded.value();
    values = test::unpack(view);
  }
  std::unique_ptr<Device> device = open_device({.name = "cpu", .threads = 2}).value();
  Buffer memory;
  WeightView view;
  std::vector<float> values;
};

double mean_square(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return sum / static_cast<double>(values.size());
}

TEST(Synthetic, Int4MatricesKeepTheVarianceOfTheirInput) {
  const LoadedMatrix m("model.language_model.layers.0.mlp.down_proj", 256, 512);
  ASSERT_EQ(m.view.layout, WeightLayout::kInt4Group);
  EXPECT_NEAR(mean_square(m.values) * 512, 1, 0.1);
  EXPECT_GT(std::set<float>(m.values.begin(), m.values.end()).size(), 1000u);
}

TEST(Synthetic, DenseMatricesKeepTheVarianceOfTheirInput) {
  const LoadedMatrix m("lm_head", 512, 256);
  ASSERT_EQ(m.view.layout, WeightLayout::kDense);
  EXPECT_NEAR(mean_square(m.values) * 256, 1, 0.1);
}

TEST(Synthetic, ValuesDependOnTheNameOnly) {
  const LoadedMatrix a("model.language_model.layers.0.mlp.up_proj", 512, 256);
  const LoadedMatrix b("model.language_model.layers.0.mlp.up_proj", 512, 256);
  const LoadedMatrix c("model.language_model.layers.1.mlp.up_proj", 512, 256);
  EXPECT_EQ(a.values, b.values);
  EXPECT_NE(a.values, c.values);
}

TEST(Synthetic, VectorsStayInTheirRange) {
  const Checkpoint c = checkpoint("tiny-int4");
  const RawTensor* bias = c.find("model.language_model.layers.0.linear_attn.dt_bias");
  ASSERT_NE(bias, nullptr);
  std::vector<float> values(static_cast<size_t>(bias->elements()));
  synthetic_values("dt_bias", *bias, values);
  for (const float v : values) {
    EXPECT_GE(v, -6.9f);
    EXPECT_LE(v, -2.2f);
  }
}

}  // namespace
}  // namespace exode
