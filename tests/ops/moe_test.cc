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

struct MoeCase {
  WeightCase weight;
  int32_t hidden, inner, rows;
};

// Owns the arguments; expert 4 gets no row, expert 0 at least one choice of every row.
class Moe {
 public:
  static constexpr int32_t kExperts = 6, kTopK = 3;

  explicit Moe(const MoeCase& c)
      : c_(c),
        gate_up_(c.weight, kExperts * 2 * c.inner, c.hidden, 1),
        down_(c.weight, kExperts * c.hidden, c.inner, 2),
        x_(DType::kF32, {c.rows, c.hidden}),
        weights_(DType::kF32, {c.rows, kTopK}),
        ids_(DType::kI32, {c.rows, kTopK}) {
    x_.fill(3);
    weights_.fill(4, 0, 1);
    constexpr float kOthers[] = {5, 2, 1, 3};
    for (int32_t r = 0; r < c.rows; ++r) {
      for (int32_t j = 0; j < kTopK; ++j) {
        ids_.set(r * kTopK + j, j == r % kTopK ? 0 : kOthers[(r / 2 + j) % 4]);
      }
    }
  }
  std::vector<float> run(OpRunner& op, int32_t first, int32_t rows) {
    HostTensor out(DType::kF32, {rows, c_.hidden});
    for (int64_t i = 0; i < out.size(); ++i) out.set(i, NAN);
    op(ops::MoeExperts{.x = x_.cview().slice_rows(first, rows),
                       .ids = ids_.cview().slice_rows(first, rows),
                       .weights = weights_.cview().slice_rows(first, rows),
                       .gate_up = gate_up_.view(),
                       .down = down_.view(),
                       .experts = kExperts,
                       .out = out.view()});
    return out.floats();
  }
  void set_id(int64_t at, int32_t id) { ids_.set(at, static_cast<float>(id)); }

 private:
  MoeCase c_;
  RandomWeight gate_up_, down_;
  HostTensor x_, weights_, ids_;
};

class MoeExpertsTest : public ::testing::TestWithParam<WeightCase> {
 protected:
  // fp8 experts are whole blocks; the others need not be.
  static std::vector<MoeCase> cases() {
    if (GetParam().layout == WeightLayout::kFp8Block) return {{GetParam(), 128, 128, 11}};
    return {{GetParam(), 100, 37, 1}, {GetParam(), 100, 37, 11}, {GetParam(), 256, 70, 23}};
  }
};

TEST_P(MoeExpertsTest, EqualsTheReference) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  for (const MoeCase& c : cases()) {
    Moe moe(c);
    SCOPED_TRACE(::testing::Message() << c.hidden << ", " << c.inner << ", rows " << c.rows);
    expect_products_close(moe.run(cpu, 0, c.rows), moe.run(ref, 0, c.rows), c.hidden);
  }
}

TEST_P(MoeExpertsTest, ARowHasTheSameBitsAloneAndForAnyThreadCount) {
  OpRunner one(Backend::kCpu, 1), two(Backend::kCpu, 2), five(Backend::kCpu, 5);
  for (const MoeCase& c : cases()) {
    Moe moe(c);
    const std::vector<float> all = moe.run(two, 0, c.rows);
    EXPECT_EQ(all, moe.run(one, 0, c.rows));
    EXPECT_EQ(all, moe.run(five, 0, c.rows));
    for (int32_t r = 0; r < c.rows; ++r) {
      const std::vector<float> alone = moe.run(two, r, 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + int64_t{r} * c.hidden)) << r;
    }
  }
}

TEST(MoeExpertsDeath, AnExpertThatDoesNotExistIsRefused) {
  OpRunner cpu(Backend::kCpu);
  Moe moe({{WeightLayout::kDense, DType::kF32}, 16, 8, 2});
  moe.set_id(4, Moe::kExperts);
  EXPECT_DEATH(moe.run(cpu, 0, 2), "no expert 6");
}

INSTANTIATE_TEST_SUITE_P(Layouts, MoeExpertsTest, ::testing::ValuesIn(weight_cases()),
                         [](const auto& p) { return p.param.name(); });

}  // namespace
}  // namespace exode::testing
