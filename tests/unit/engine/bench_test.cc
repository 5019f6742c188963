#include "engine/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace exode {
namespace {

using ::testing::HasSubstr;

EngineConfig tiny(const std::string& name) {
  EngineConfig config;
  config.synthetic = name;
  config.max_num_batched_tokens = 32;
  return config;
}

const BenchOp* find(const std::vector<BenchOp>& ops, std::string_view name) {
  for (const BenchOp& op : ops) {
    if (op.op == name) return &op;
  }
  return nullptr;
}

TEST(Bench, MeasuresEveryCombinationAndEveryOp) {
  const auto result = run_bench(
      tiny("tiny-int4"),
      {.contexts = {0, 200}, .rows = {1, 3}, .prefill = {50}, .steps = 3, .progress = {}});
  ASSERT_TRUE(result.ok()) << result.error().message;
  const BenchReport& report = result.value();
  EXPECT_GT(report.bandwidth.read, 0);
  EXPECT_GT(report.bandwidth.copy, 0);
  EXPECT_GT(report.peak_bytes, 0u);
  ASSERT_EQ(report.decodes.size(), 4u);
  for (const BenchDecode& d : report.decodes) {
    EXPECT_EQ(d.skipped, "");
    EXPECT_GT(d.step_seconds, 0);
    EXPECT_GT(d.submit_seconds, 0);
    ASSERT_NE(find(d.ops, "attend"), nullptr);
    EXPECT_EQ(find(d.ops, "attend")->calls, 1);
    EXPECT_EQ(find(d.ops, "sample")->calls, 1);
  }
  // One layer of one head: K and V of 256 bf16 values for each of the four blocks of 64 tokens,
  // against one block at the start.
  const uint64_t near = find(report.decodes[0].ops, "attend")->bytes;
  const uint64_t far = find(report.decodes[2].ops, "attend")->bytes;
  EXPECT_EQ(far - near, 3u * 64 * 2 * 256 * 2);
  ASSERT_EQ(report.prefills.size(), 1u);
  EXPECT_EQ(report.prefills[0].chunk, 32);
  EXPECT_GT(report.prefills[0].seconds, 0);
  EXPECT_NE(find(report.prefills[0].ops, "attend"), nullptr);
}

TEST(Bench, SaysWhatDoesNotFit) {
  EngineConfig config = tiny("tiny-moe-int4");
  config.kv_memory = size_t{1} << 20;  // 1024 tokens
  const auto result = run_bench(config, {.contexts = {900}, .rows = {1, 2}, .steps = 2});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result.value().decodes[0].skipped, "");
  EXPECT_THAT(result.value().decodes[1].skipped, HasSubstr("kv cache holds 1024 tokens"));
}

TEST(Bench, RefusesNonsense) {
  for (const BenchOptions& options :
       {BenchOptions{.rows = {0}}, BenchOptions{.contexts = {-1}}, BenchOptions{.prefill = {1}},
        BenchOptions{.steps = 0}, BenchOptions{.rows = {}}}) {
    EXPECT_FALSE(run_bench(tiny("tiny-int4"), options).ok());
  }
}

TEST(Bench, TotalsAddUp) {
  const BenchOp total = total_of({{"a", 2, 10, 100, 0.5}, {"b", 1, 5, 1, 0.25}});
  EXPECT_EQ(total.calls, 3);
  EXPECT_EQ(total.bytes, 15u);
  EXPECT_EQ(total.flops, 101u);
  EXPECT_DOUBLE_EQ(total.seconds, 0.75);
}

// Made-up weights must not blow up: measuring infinities would measure other code paths.
TEST(SyntheticModel, LogitsAreFiniteAndNearUnitSize) {
  for (const char* name : {"tiny-int4", "tiny-moe-int4"}) {
    EngineConfig config = tiny(name);
    config.max_num_seqs = 1;
    config.max_model_len = 64;
    config.evaluation = true;
    const auto engine = Engine::create(config);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    std::vector<TokenId> tokens;
    for (TokenId t = 0; t < 40; ++t) tokens.push_back(t * 7);
    double squares = 0;
    int64_t count = 0;
    const Status status =
        engine.value()->evaluate(tokens, [&](int32_t, int32_t rows, const float* logits) {
          for (int64_t i = 0; i < int64_t{rows} * engine.value()->facts().vocab; ++i, ++count) {
            ASSERT_TRUE(std::isfinite(logits[i]));
            squares += static_cast<double>(logits[i]) * logits[i];
          }
        });
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), 1, 0.3) << name;
  }
}

}  // namespace
}  // namespace exode
