#include "engine/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/runner.h"

namespace exode {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

EngineConfig tiny(const std::string& name = "tiny-int4") {
  EngineConfig config;
  config.synthetic = name;
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 32;
  config.threads = 1;  // as many as plan() describes: kernels keep scratch for each
  return config;
}

PlanReport plan(const EngineConfig& config, size_t memory) {
  DeviceCaps caps;
  caps.name = "described";
  caps.memory_bytes = memory;
  Result<PlanReport> report = plan_engine(config, Backend::kCpu, caps);
  EXPECT_TRUE(report.ok()) << report.error().message;
  return std::move(report).value();
}

TEST(Plan, TheLargestContextIsTheLastThatFits) {
  EngineConfig config = tiny();
  const int32_t largest = plan(config, 12 * kMiB).context_max;
  ASSERT_GT(largest, 64);
  ASSERT_LT(largest, 262144);
  config.max_model_len = largest;
  EXPECT_EQ(plan(config, 12 * kMiB).refusal, "");
  config.max_model_len = largest + 1;
  EXPECT_THAT(plan(config, 12 * kMiB).refusal, HasSubstr("--kv-cache-dtype"));
  EXPECT_GT(plan(config, 24 * kMiB).context_max, largest);
}

TEST(Plan, TheModelLimitsTheContextWhereMemoryDoesNot) {
  EXPECT_EQ(plan(tiny(), 1024 * kMiB).context_max, 262144);
}

TEST(Plan, LinesStayWithinTheMemory) {
  const PlanReport report = plan(tiny(), 16 * kMiB);
  const size_t total =
      std::accumulate(report.lines.begin(), report.lines.end(), size_t{0},
                      [](size_t sum, const PlanLine& line) { return sum + line.bytes; });
  EXPECT_LE(total, 16 * kMiB);
  EXPECT_GT(total, 15 * kMiB);
}

TEST(Plan, IsWhatTheRunnerTakes) {
  EngineConfig config = tiny("tiny-moe-int4");
  config.max_model_len = 512;
  config.memory_limit = 64 * kMiB;
  const PlanReport report = plan(config, config.memory_limit);
  const auto runner = ModelRunner::create(config);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  const std::vector<PlanLine>& taken = runner.value()->facts().plan;
  ASSERT_EQ(report.lines.size(), taken.size());
  for (size_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(report.lines[i].purpose, taken[i].purpose);
    EXPECT_EQ(report.lines[i].bytes, taken[i].bytes) << taken[i].purpose;
  }
}

TEST(Plan, MemoryBelowTheWeightsIsAnErrorWithAdvice) {
  DeviceCaps caps;
  caps.memory_bytes = kMiB;
  const Result<PlanReport> report = plan_engine(tiny(), Backend::kCpu, caps);
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("--max-num-seqs"));
}

TEST(Plan, TheGpuLimitIsRefusedOnTheCpu) {
  EngineConfig config = tiny();
  config.gpu_memory_limit = size_t{24} << 30;
  const auto runner = ModelRunner::create(config);
  ASSERT_FALSE(runner.ok());
  EXPECT_THAT(runner.error().message, HasSubstr("--memory-limit"));
}

}  // namespace
}  // namespace exode
