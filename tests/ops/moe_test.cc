#include <gtest/gtest.h>

#include "ops/random_weight.h"

namespace exode::testing {
namespace {

TEST(MoeRoute, EqualsTheReferenceWithTiesToTheLowerId) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  HostTensor logits = HostTensor(DType::kF32, {6, 17}).fill(1, -4, 4);
  for (int64_t i = 0; i < 17; ++i) logits.set(i, 1);  // all equal
  for (int64_t i = 17; i < 34; ++i) logits.set(i, i % 3 == 0 ? 2.0f : -1.0f);
  for (bool normalize : {true, false}) {
    HostTensor i1(DType::kI32, {6, 4}), w1(DType::kF32, {6, 4}), i2(DType::kI32, {6, 4}),
        w2(DType::kF32, {6, 4});
    ref(ops::MoeRoute{
        .logits = logits.cview(), .ids = i1.view(), .weights = w1.view(), .normalize = normalize});
    cpu(ops::MoeRoute{
        .logits = logits.cview(), .ids = i2.view(), .weights = w2.view(), .normalize = normalize});
    EXPECT_EQ(i2.floats(), i1.floats());
    EXPECT_EQ(i2.get(0), 0);
    EXPECT_EQ(i2.get(3), 3);
    EXPECT_LE(nmse(w2.floats(), w1.floats()), 1e-12);
  }
}

class MoeExpertsTest : public ::testing::TestWithParam<WeightCase> {};

TEST_P(MoeExpertsTest, EqualsTheReferenceAndIgnoresNeighbours) {
  constexpr int32_t kExperts = 5, kHidden = 128, kInner = 128, kTopK = 3, kRows = 9;
  const RandomWeight gate_up(GetParam(), kExperts * 2 * kInner, kHidden, 1),
      down(GetParam(), kExperts * kHidden, kInner, 2);
  const HostTensor x = HostTensor(DType::kF32, {kRows, kHidden}).fill(3),
                   weights = HostTensor(DType::kF32, {kRows, kTopK}).fill(4, 0, 1);
  HostTensor ids(DType::kI32, {kRows, kTopK});
  for (int32_t r = 0; r < kRows; ++r) {
    for (int32_t j = 0; j < kTopK; ++j)
      ids.set(r * kTopK + j, static_cast<float>((r + 2 * j) % kExperts));
  }
  const auto run = [&](OpRunner& op, int32_t first, int32_t rows) {
    HostTensor out(DType::kF32, {rows, kHidden});
    op(ops::MoeExperts{.x = x.cview().slice_rows(first, rows),
                       .ids = ids.cview().slice_rows(first, rows),
                       .weights = weights.cview().slice_rows(first, rows),
                       .gate_up = gate_up.view(),
                       .down = down.view(),
                       .experts = kExperts,
                       .out = out.view()});
    return out.floats();
  };
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  const std::vector<float> all = run(cpu, 0, kRows);
  EXPECT_LE(nmse(all, run(ref, 0, kRows)), 1e-9);
  for (int32_t r = 0; r < kRows; ++r) {
    const std::vector<float> alone = run(cpu, r, 1);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + r * kHidden)) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, MoeExpertsTest, ::testing::ValuesIn(weight_cases()),
                         [](const auto& p) { return p.param.name(); });

}  // namespace
}  // namespace exode::testing
