#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "kv/pool.h"

namespace exode {
namespace {

ModelSpec spec() {
  ModelSpec s;
  s.context_max = 32768;
  s.kv_groups = {{.layers = 2, .heads = 1, .head_dim = 256}};
  s.state =
      StateGeometry{.layers = 6,
                    .gdn = {.key_heads = 2, .value_heads = 6, .key_dim = 128, .value_dim = 128},
                    .conv_width = 4};
  return s;
}

MemoryNeeds needs(size_t memory) {
  return {.weights = size_t{100} << 20, .workspace = 1 << 20, .step_io = 1 << 20, .memory = memory};
}

TEST(MemoryPlan, LinesAddUpAndEverySequenceFits) {
  EngineConfig config;
  const auto plan =
      make_memory_plan(spec(), *find_kv_format("bf16"), config, needs(size_t{4} << 30));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan.value().context_max, 32768);
  EXPECT_EQ(plan.value().kv_blocks, 8 * 512);
  EXPECT_LE(plan.value().total_bytes(), size_t{4} << 30);
  EXPECT_EQ(plan.value().state_slots, 8);
}

TEST(MemoryPlan, ContextShrinksToWhatFitsWhenNobodyAskedForMore) {
  EngineConfig config;
  const auto plan =
      make_memory_plan(spec(), *find_kv_format("bf16"), config, needs(size_t{160} << 20));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_LT(plan.value().context_max, 32768);
  EXPECT_LE(plan.value().total_bytes(), size_t{160} << 20);
}

TEST(MemoryPlan, AskingForTooMuchNamesWhatFits) {
  EngineConfig config;
  config.max_model_len = 32768;
  const auto plan =
      make_memory_plan(spec(), *find_kv_format("f32"), config, needs(size_t{160} << 20));
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.error().message.find("lower it to"), std::string::npos) << plan.error().message;
}

TEST(MemoryPlan, WeightsThatDoNotFitAreAnError) {
  const auto plan = make_memory_plan(spec(), *find_kv_format("bf16"), {}, needs(size_t{50} << 20));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace exode
