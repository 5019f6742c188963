#include "ops/qk_norm_rope.h"

#include "ops/compare.h"

namespace exode {
namespace {

using testing::HostTensor;
using testing::OpRunner;
using testing::Window;

struct RopeCase {
  int32_t q_heads, k_heads, head_dim, rotary_dim;
  bool norm;
};

HostTensor frequencies(int32_t rotary_dim, double base) {
  HostTensor t(DType::kF32, {rotary_dim / 2});
  for (int32_t j = 0; j < rotary_dim / 2; ++j) {
    t.set(j, static_cast<float>(std::pow(base, -2.0 * j / rotary_dim)));
  }
  return t;
}

// q rows and k rows alternate in the result.
std::vector<float> run_case(OpRunner& run, const RopeCase& c,
                            const std::vector<int32_t>& positions) {
  const auto rows = static_cast<int32_t>(positions.size());
  HostTensor qkv(DType::kF32, {rows, (c.q_heads + 2 * c.k_heads) * c.head_dim + 1});
  HostTensor q_weight(DType::kF32, {c.head_dim}), k_weight(DType::kF32, {c.head_dim});
  HostTensor inv_freq = frequencies(c.rotary_dim, 1e7), where = testing::indices(positions);
  qkv.fill(1, -2, 2);
  q_weight.fill(2);
  k_weight.fill(3);
  run(ops::QkNormRope{
      .q = qkv.view().slice_cols(1, c.q_heads * c.head_dim),
      .k = qkv.view().slice_cols(1 + c.q_heads * c.head_dim, c.k_heads * c.head_dim),
      .q_weight = c.norm ? q_weight.view() : TensorView{},
      .k_weight = c.norm ? k_weight.view() : TensorView{},
      .inv_freq = inv_freq.view(),
      .positions = where.view(),
      .head_dim = c.head_dim,
      .weight_bias = 1,
      .rope_scale = 1.25f});
  return qkv.floats();
}

TEST(QkNormRopeTest, MatchesReference) {
  const std::vector<int32_t> positions = {0, 1, 5, 63, 64, 1000, 32767, -1, 262143};
  for (const RopeCase& c : {RopeCase{4, 2, 64, 64, true}, RopeCase{6, 1, 256, 64, true},
                            RopeCase{3, 3, 128, 128, false}, RopeCase{2, 1, 20, 6, true},
                            RopeCase{1, 1, 2, 2, false}}) {
    SCOPED_TRACE(::testing::Message() << c.q_heads << ' ' << c.head_dim << ' ' << c.rotary_dim);
    const auto program = [&](OpRunner& run, int32_t rows) {
      return run_case(run, c, {positions.begin(), positions.begin() + rows});
    };
    testing::check_rows(program, static_cast<int32_t>(positions.size()), 2e-5);
  }
}

TEST(QkNormRopeTest, LeavesPaddingRowsAlone) {
  const RopeCase c{2, 1, 64, 32, true};
  HostTensor untouched(DType::kF32, {3, 4 * 64 + 1});
  untouched.fill(1, -2, 2);
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    OpRunner run(backend);
    testing::expect_same_bits(run_case(run, c, {-1, -1, -1}), untouched.floats());
  }
}

TEST(QkNormRopeTest, RotatesPairsHalfTheRotaryWidthApart) {
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    HostTensor q(DType::kF32, {1, 6}), k(DType::kF32, {1, 6}), inv_freq(DType::kF32, {2});
    q.fill_values({1, 0, 0, 1, 7, 8});
    k.fill_values({0, 2, 3, 0, -7, -8});
    inv_freq.fill_values({1, 0.5f});
    HostTensor positions = testing::indices({2});
    OpRunner run(backend);
    run(ops::QkNormRope{.q = q.view(),
                        .k = k.view(),
                        .q_weight = {},
                        .k_weight = {},
                        .inv_freq = inv_freq.view(),
                        .positions = positions.view(),
                        .head_dim = 6});
    const float c0 = std::cos(2.0f), s0 = std::sin(2.0f), c1 = std::cos(1.0f), s1 = std::sin(1.0f);
    EXPECT_LE(testing::max_difference(q.floats(), {c0, -s1, s0, c1, 7, 8}), 1e-6);
    EXPECT_LE(testing::max_difference(k.floats(), {-3 * s0, 2 * c1, 3 * c0, 2 * s1, -7, -8}), 1e-6);
  }
}

TEST(QkNormRopeDeathTest, RefusesHalfANorm) {
  HostTensor q(DType::kF32, {1, 8}), weight(DType::kF32, {8}), inv_freq(DType::kF32, {4});
  HostTensor k(DType::kF32, {1, 8}), positions = testing::indices({0});
  OpRunner run(Backend::kCpu);
  EXPECT_DEATH(run(ops::QkNormRope{.q = q.view(),
                                   .k = k.view(),
                                   .q_weight = weight.view(),
                                   .k_weight = {},
                                   .inv_freq = inv_freq.view(),
                                   .positions = positions.view(),
                                   .head_dim = 8}),
               "norm weight is missing");
}

}  // namespace
}  // namespace exode
