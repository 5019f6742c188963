#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "ops/harness.h"

namespace exode::testing {
namespace {

struct Draw {
  std::vector<ops::SampleRow> rows;
  std::vector<ops::TokenCount> history;
  std::vector<ops::TokenBias> bias;

  std::vector<int32_t> run(OpRunner& op, const std::vector<float>& logits, int32_t vocab,
                           int32_t limit) const {
    const auto n = static_cast<int32_t>(rows.size());
    HostTensor l = HostTensor(DType::kF32, {n, vocab}).fill_values(logits);
    std::vector<int32_t> next(rows.size(), -7);
    const auto bytes = [](const auto& v) {
      const auto size = static_cast<int32_t>(v.size() * sizeof(v[0]));
      return ConstTensorView(
          dense_view(reinterpret_cast<const std::byte*>(v.data()), DType::kU8, {size}));
    };
    op(ops::Sample{.logits = l.view(),
                   .rows = bytes(rows),
                   .history = bytes(history),
                   .bias = bytes(bias),
                   .vocab_limit = limit,
                   .next_token = dense_view(next.data(), DType::kI32, {n})});
    return next;
  }
};

ops::SampleRow row(float temperature, uint64_t seed = 0, uint64_t position = 0) {
  ops::SampleRow r;
  r.temperature = temperature;
  r.active = 1;
  r.seed = seed;
  r.position = position;
  return r;
}

std::vector<float> random_logits(int32_t n, uint64_t seed, float scale = 4) {
  return HostTensor(DType::kF32, {n}).fill(seed, -scale, scale).floats();
}

// The tokens at positions 0…count of rows that are otherwise equal, many rows an op.
std::vector<int32_t> draw_many(OpRunner& op, const std::vector<float>& logits,
                               const ops::SampleRow& row, int32_t count) {
  constexpr int32_t kRows = 500;
  const auto vocab = static_cast<int32_t>(logits.size());
  std::vector<float> copies;
  for (int32_t r = 0; r < kRows; ++r) copies.insert(copies.end(), logits.begin(), logits.end());
  std::vector<int32_t> ids;
  for (int32_t first = 0; first < count; first += kRows) {
    Draw draw{std::vector<ops::SampleRow>(kRows, row), {}, {}};
    for (int32_t r = 0; r < kRows; ++r) {
      draw.rows[static_cast<size_t>(r)].position = static_cast<uint64_t>(first + r);
    }
    const std::vector<int32_t> some = draw.run(op, copies, vocab, vocab);
    ids.insert(ids.end(), some.begin(), some.end());
  }
  return ids;
}

class SampleTest : public ::testing::TestWithParam<Backend> {
 protected:
  OpRunner op_{GetParam()};
};

TEST_P(SampleTest, GreedyTakesTheLowestOfEqualsBelowTheLimit) {
  const std::vector<float> logits{1, 5, 2, 5, 9};
  EXPECT_EQ((Draw{{row(0)}, {}, {}}.run(op_, logits, 5, 4)), std::vector<int32_t>{1});
}

TEST_P(SampleTest, NanAndInfinityNeverLeaveTheVocabulary) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (float t : {0.0f, 1.0f}) {
    EXPECT_EQ((Draw{{row(t)}, {}, {}}.run(op_, {NAN, NAN, NAN}, 3, 3)), std::vector<int32_t>{0});
    EXPECT_EQ((Draw{{row(t)}, {}, {}}.run(op_, {-kInf, -kInf, -kInf}, 3, 3)),
              std::vector<int32_t>{0});
    EXPECT_EQ((Draw{{row(t)}, {}, {}}.run(op_, {NAN, 1, -kInf}, 3, 3)), std::vector<int32_t>{1});
  }
}

TEST_P(SampleTest, BiasAndPenaltiesShiftTheArgMax) {
  const std::vector<float> logits{3, 2.5f, 1, -1};
  ops::SampleRow r = row(0);
  r.bias_count = 1;
  EXPECT_EQ((Draw{{r}, {}, {{3, 10}}}.run(op_, logits, 4, 4)), std::vector<int32_t>{3});
  r = row(0);
  r.history_count = 1;
  r.repetition = 1.5f;  // 3 / 1.5 = 2 < 2.5
  EXPECT_EQ((Draw{{r}, {{0, 0}}, {}}.run(op_, logits, 4, 4)), std::vector<int32_t>{1});
  r.repetition = 1;
  r.presence = 1;
  EXPECT_EQ((Draw{{r}, {{0, 0}}, {}}.run(op_, logits, 4, 4)), std::vector<int32_t>{0})
      << "prompt tokens have no presence";
  EXPECT_EQ((Draw{{r}, {{0, 1}}, {}}.run(op_, logits, 4, 4)), std::vector<int32_t>{1});
  r.presence = 0;
  r.frequency = 0.2f;
  EXPECT_EQ((Draw{{r}, {{0, 2}}, {}}.run(op_, logits, 4, 4)), std::vector<int32_t>{0});
  EXPECT_EQ((Draw{{r}, {{0, 3}}, {}}.run(op_, logits, 4, 4)), std::vector<int32_t>{1});
}

TEST_P(SampleTest, SeedAndPositionDecideNotTheRow) {
  const std::vector<float> logits = random_logits(100, 3);
  std::vector<float> three;
  for (int i = 0; i < 3; ++i) three.insert(three.end(), logits.begin(), logits.end());
  const auto alone = Draw{{row(1, 9, 4)}, {}, {}}.run(op_, logits, 100, 100);
  ops::SampleRow off = row(1);
  off.active = 0;
  const auto crowd = Draw{{row(1, 8, 4), off, row(1, 9, 4)}, {}, {}}.run(op_, three, 100, 100);
  EXPECT_EQ(crowd[2], alone[0]);
  EXPECT_EQ(crowd[1], -7);
}

TEST_P(SampleTest, RestrictionsKeepExactlyTheRightIds) {
  // Probabilities .5 .25 .15 .06 .04
  const std::vector<float> logits{std::log(.25f), std::log(.5f), std::log(.04f), std::log(.15f),
                                  std::log(.06f)};
  const auto seen = [&](auto change) {
    ops::SampleRow r = row(1, 5);
    change(r);
    const std::vector<int32_t> drawn = draw_many(op_, logits, r, 3000);
    const std::set<int32_t> ids(drawn.begin(), drawn.end());
    return std::vector<int32_t>(ids.begin(), ids.end());
  };
  EXPECT_EQ(seen([](auto& r) { r.top_k = 2; }), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(seen([](auto& r) { r.top_p = 0.74f; }), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(seen([](auto& r) { r.top_p = 0.76f; }), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(seen([](auto& r) { r.min_p = 0.1f; }), (std::vector<int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(seen([](auto& r) { r.top_p = 1e-6f; }), (std::vector<int32_t>{1}));
  EXPECT_EQ(seen([](auto&) {}), (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

INSTANTIATE_TEST_SUITE_P(Backends, SampleTest, ::testing::Values(Backend::kRef, Backend::kCpu),
                         [](const auto& p) { return std::string(backend_name(p.param)); });

TEST(SampleCpu, FrequenciesMatchTheProbabilities) {
  OpRunner cpu(Backend::kCpu);
  constexpr int32_t kVocab = 20, kDraws = 20000;
  const std::vector<float> logits = random_logits(kVocab, 1, 2);
  const float temperature = 0.7f;
  std::vector<double> p(kVocab);
  double total = 0;
  for (size_t i = 0; i < p.size(); ++i) total += p[i] = std::exp(logits[i] / temperature);
  std::vector<int> counts(kVocab);
  for (const int32_t id : draw_many(cpu, logits, row(temperature, 77), kDraws)) {
    ++counts[static_cast<size_t>(id)];
  }
  double chi = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] / total * kDraws;
    chi += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi, 43.8);  // 19 degrees of freedom, p = 0.001
}

TEST(SampleCpu, EqualsTheReferenceOnLargeVocabularies) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  constexpr int32_t kVocab = 5000;
  int different = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    ops::SampleRow r = row(0.3f + 0.02f * static_cast<float>(i), i, i);
    r.top_k = i % 3 == 0 ? 20 : 0;
    r.top_p = i % 2 == 0 ? 0.95f : 1.0f;
    r.min_p = i % 5 == 0 ? 0.02f : 0.0f;
    const Draw draw{{r}, {}, {}};
    const std::vector<float> logits = random_logits(kVocab, i, 6);
    different +=
        draw.run(cpu, logits, kVocab, kVocab) != draw.run(ref, logits, kVocab, kVocab) ? 1 : 0;
  }
  EXPECT_LE(different, 1) << "only a draw on the border of two ids may differ";
}

// More ids than one chunk of the CPU kernel, many of them equal.
TEST_P(SampleTest, TiesAtTheCutGoToTheLowerIds) {
  std::vector<float> logits(700, 1.0f);
  logits[5] = logits[300] = -1;
  const auto seen = [&](auto change) {
    Draw draw;
    std::vector<float> all;
    for (uint64_t i = 0; i < 400; ++i) {
      draw.rows.push_back(row(1, 3, i));
      change(draw.rows.back());
      all.insert(all.end(), logits.begin(), logits.end());
    }
    const std::vector<int32_t> ids = draw.run(op_, all, 700, 690);
    return std::set<int32_t>(ids.begin(), ids.end());
  };
  EXPECT_EQ(seen([](auto& r) { r.top_k = 3; }), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(seen([](auto& r) { r.top_k = 6; }), (std::set<int32_t>{0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(seen([](auto& r) { r.top_p = 6.5f / 688; }), (std::set<int32_t>{0, 1, 2, 3, 4, 6, 7}));
  EXPECT_EQ(seen([](auto& r) {
              r.top_k = 8;
              r.top_p = 0.2f;
            }),
            (std::set<int32_t>{0, 1}));
  const std::set<int32_t> unequal = seen([](auto& r) { r.min_p = 0.5f; });
  EXPECT_FALSE(unequal.contains(5) || unequal.contains(300));
  EXPECT_GT(unequal.size(), 250u);
  EXPECT_LT(*seen([](auto&) {}).rbegin(), 690);
}

TEST_P(SampleTest, ExtremeParametersStillDraw) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> logits{1, kInf, 3, -kInf};
  EXPECT_EQ((Draw{{row(1)}, {}, {}}.run(op_, logits, 4, 4)), std::vector<int32_t>{1});
  ops::SampleRow r = row(1);
  r.min_p = 2;
  EXPECT_EQ((Draw{{r}, {}, {}}.run(op_, {1, 2, 3}, 3, 3)), std::vector<int32_t>{2});
  r = row(1e-30f);
  EXPECT_EQ((Draw{{r}, {}, {}}.run(op_, {1, 2, 3}, 3, 3)), std::vector<int32_t>{2});
  r = row(1);
  r.top_p = 0;
  EXPECT_EQ((Draw{{r}, {}, {}}.run(op_, {1, 2, 3}, 3, 3)), std::vector<int32_t>{2});
  r = row(1, 0, 7);
  r.top_k = 100;
  EXPECT_EQ((Draw{{r}, {}, {}}.run(op_, {1, NAN, -kInf}, 3, 3)), std::vector<int32_t>{0});
}

// Vocabulary and distribution of a real model: a few likely ids, a long tail.
TEST(SampleCpu, EqualsTheReferenceOnARealVocabulary) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu, 2);
  constexpr int32_t kVocab = 151'936, kLimit = 151'669;
  std::vector<float> logits = random_logits(kVocab, 4, 1);
  for (float& l : logits) l = -2 * std::log(-std::log(0.5f + 0.4999f * l));
  const float temperatures[] = {0.2f, 0.7f, 1, 1.5f, 6};
  int different = 0;
  for (uint64_t i = 0; i < 15; ++i) {
    ops::SampleRow r = row(temperatures[i % 5], 100 + i, i);
    if (i < 10) r.top_p = 0.9f;
    if (i >= 5) r.top_k = 40;
    const Draw draw{{r}, {}, {}};
    different += draw.run(cpu, logits, kVocab, kLimit) != draw.run(ref, logits, kVocab, kLimit);
  }
  EXPECT_EQ(different, 0);
}

// The vocabulary of Qwen3.5, every restriction and penalty, several rows an op.
TEST(SampleTested, EqualsTheReferenceOnTheLargestVocabulary) {
  OpRunner ref(Backend::kRef), tested(Backend::kCpu);
  constexpr int32_t kVocab = 248'320, kLimit = 248'077, kRows = 12;
  std::vector<float> logits;
  Draw draw;
  for (uint64_t i = 0; i < kRows; ++i) {
    std::vector<float> one = random_logits(kVocab, 30 + i, 1);
    for (float& l : one) l = -2 * std::log(-std::log(0.5f + 0.4999f * l));
    logits.insert(logits.end(), one.begin(), one.end());
    ops::SampleRow r = row(i == 0 ? 0 : 0.5f + 0.1f * static_cast<float>(i), 200 + i, i);
    if (i % 2 == 0) r.top_k = 50;
    if (i % 3 == 0) r.top_p = 0.9f;
    if (i % 4 == 1) r.min_p = 0.05f;
    r.top_k = r.top_k == 0 && r.top_p == 1 && r.min_p == 0 ? 1000 : r.top_k;
    r.presence = i % 3 == 1 ? 0.7f : 0;
    r.frequency = i % 3 == 2 ? 0.3f : 0;
    r.repetition = i % 4 == 3 ? 1.3f : 1;
    r.history_first = static_cast<int32_t>(draw.history.size());
    r.bias_first = static_cast<int32_t>(draw.bias.size());
    // The likeliest ids are in the history, some as output.
    std::vector<int32_t> order(kLimit);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + 40, order.end(), [&](int32_t a, int32_t b) {
      return one[static_cast<size_t>(a)] > one[static_cast<size_t>(b)];
    });
    for (int32_t j = 0; j < 40; ++j) {
      draw.history.push_back({order[static_cast<size_t>(j)], j % 4});
      if (j % 10 == 3) draw.bias.push_back({order[static_cast<size_t>(j)], 2.0f});
    }
    r.history_count = 40;
    r.bias_count = 4;
    draw.rows.push_back(r);
  }
  EXPECT_EQ(draw.run(tested, logits, kVocab, kLimit), draw.run(ref, logits, kVocab, kLimit));
  draw.rows.resize(1);
  logits.resize(kVocab);
  EXPECT_EQ(draw.run(tested, logits, kVocab, kLimit), draw.run(ref, logits, kVocab, kLimit));
}

TEST(SampleCpu, RestrictedFrequenciesMatchTheProbabilities) {
  constexpr int32_t kVocab = 1000, kDraws = 20'000, kKept = 30;
  std::vector<float> logits = random_logits(kVocab, 11, 3);
  std::vector<int32_t> order(kVocab);
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return at(a) > at(b); });
  double total = 0;
  for (int32_t i = 0; i < kKept; ++i) total += std::exp(at(order[static_cast<size_t>(i)]));
  std::map<int32_t, int> counts;
  OpRunner cpu(Backend::kCpu);
  ops::SampleRow r = row(1, 21);
  r.top_k = kKept;
  for (const int32_t id : draw_many(cpu, logits, r, kDraws)) ++counts[id];
  double chi = 0;
  int drawn = 0;
  for (int32_t i = 0; i < kKept; ++i) {
    const int32_t id = order[static_cast<size_t>(i)];
    const double expected = std::exp(at(id)) / total * kDraws;
    chi += (counts[id] - expected) * (counts[id] - expected) / expected;
    drawn += counts[id];
  }
  EXPECT_EQ(drawn, kDraws);
  EXPECT_LT(chi, 58.3);  // 29 degrees of freedom, p = 0.001
}

TEST(SampleCpu, ThreadsDoNotChangeTheDraw) {
  Draw draw;
  std::vector<float> logits;
  for (uint64_t i = 0; i < 7; ++i) {
    draw.rows.push_back(row(1, i, 5));
    draw.rows.back().top_p = i % 2 == 0 ? 0.8f : 1.0f;
    const std::vector<float> one = random_logits(3000, i);
    logits.insert(logits.end(), one.begin(), one.end());
  }
  OpRunner single(Backend::kCpu, 1), many(Backend::kCpu, 3);
  EXPECT_EQ(draw.run(single, logits, 3000, 3000), draw.run(many, logits, 3000, 3000));
}

}  // namespace
}  // namespace exode::testing
