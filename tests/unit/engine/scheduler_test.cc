#include "engine/scheduler.h"

#include <gtest/gtest.h>

namespace exode {
namespace {

std::unique_ptr<Sequence> sequence(int32_t known, int32_t computed) {
  auto s = std::make_unique<Sequence>();
  s->tokens.resize(static_cast<size_t>(known));
  s->prompt_count = known;
  s->tokens_max = 8;
  s->sink = [](const TokenEvent&) {};
  s->computed = computed;
  return s;
}

TEST(Scheduler, DecodesComeFirstAndPromptsFillTheRest) {
  std::vector<std::unique_ptr<Sequence>> running;
  running.push_back(sequence(1000, 0));
  running.push_back(sequence(20, 19));
  const auto slices = schedule_step(running, 129);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].sequence, running[1].get());
  EXPECT_TRUE(slices[0].samples);
  EXPECT_EQ(slices[1].count, 128);
  EXPECT_FALSE(slices[1].samples);
}

TEST(Scheduler, ChunkEndsAreAlignedWhenTheBudgetAllows) {
  std::vector<std::unique_ptr<Sequence>> running;
  running.push_back(sequence(1000, 10));
  EXPECT_EQ(schedule_step(running, 100)[0].count, 54);  // ends at 64
  EXPECT_EQ(schedule_step(running, 7)[0].count, 7);
  EXPECT_EQ(schedule_step(running, 2000)[0].count, 990);
  EXPECT_TRUE(schedule_step(running, 2000)[0].samples);
}

TEST(Scheduler, NeverExceedsTheBudgetAndAlwaysProgresses) {
  for (int32_t budget = 1; budget < 200; ++budget) {
    std::vector<std::unique_ptr<Sequence>> running;
    for (int32_t i = 0; i < 5; ++i)
      running.push_back(sequence(37 * (i + 1), i % 2 == 0 ? 0 : 37 * (i + 1) - 1));
    int32_t rows = 0;
    for (const Slice& s : schedule_step(running, budget)) rows += s.count;
    EXPECT_GT(rows, 0);
    EXPECT_LE(rows, budget);
  }
}

TEST(Scheduler, TokensBeingDrawnAreScheduledUnlessTheyAreTheLast) {
  std::vector<std::unique_ptr<Sequence>> running;
  running.push_back(sequence(20, 20));
  running[0]->drawn = 3;
  const auto slices = schedule_step(running, 8);
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].first, 20);
  EXPECT_EQ(slices[0].drawn, 3);
  EXPECT_TRUE(slices[0].samples);
  running[0]->tokens_max = 1;
  EXPECT_TRUE(schedule_step(running, 8).empty());
}

}  // namespace
}  // namespace exode
