// Norms of whole rows and, for Gated DeltaNet, of heads.
#include "ops/rms_norm.h"

#include "ops/compare.h"
#include "ops/gdn.h"

namespace exode {
namespace {

using testing::HostTensor;
using testing::OpRunner;
using testing::Window;

constexpr int32_t kWidths[] = {1, 7, 64, 100, 384, 5120};

TEST(RmsNormTest, MatchesReferenceAtAwkwardWidths) {
  for (const int32_t width : kWidths) {
    for (const float bias : {0.0f, 1.0f}) {
      SCOPED_TRACE(width);
      const auto program = [=](OpRunner& run, int32_t rows) {
        Window x(rows, width), out(rows, width);
        HostTensor weight(DType::kF32, {width});
        x.fill(1, -3, 3);
        out.fill(2);
        weight.fill(3);
        run(ops::RmsNorm{
            .x = x.view(), .weight = weight.view(), .out = out.view(), .weight_bias = bias});
        return out.floats();
      };
      testing::check_rows(program, 9, 2e-6);
    }
  }
}

TEST(RmsNormTest, RunsInPlace) {
  HostTensor x(DType::kF32, {5, 100}), out(DType::kF32, {5, 100}), weight(DType::kF32, {100});
  x.fill(1);
  weight.fill(2);
  OpRunner run(Backend::kCpu);
  run(ops::RmsNorm{.x = x.view(), .weight = weight.view(), .out = out.view()});
  run(ops::RmsNorm{.x = x.view(), .weight = weight.view(), .out = x.view()});
  testing::expect_same_bits(x.floats(), out.floats());
}

TEST(RmsNormTest, ZeroWeightsWithBiasGiveUnitScale) {
  HostTensor x(DType::kF32, {1, 4}), weight(DType::kF32, {4}), out(DType::kF32, {1, 4});
  x.fill_values({3, -4, 5, 0});  // mean of squares 12.5
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    OpRunner run(backend);
    run(ops::RmsNorm{
        .x = x.view(), .weight = weight.view(), .out = out.view(), .eps = 0, .weight_bias = 1});
    const float rms = std::sqrt(12.5f);
    EXPECT_LE(testing::max_difference(out.floats(), {3 / rms, -4 / rms, 5 / rms, 0}), 1e-6);
  }
}

TEST(RmsNormTest, EpsilonKeepsZeroRowsFinite) {
  HostTensor x(DType::kF32, {1, 64}), weight(DType::kF32, {64}), out(DType::kF32, {1, 64});
  OpRunner run(Backend::kCpu);
  run(ops::RmsNorm{.x = x.view(), .weight = weight.fill(1).view(), .out = out.view()});
  EXPECT_EQ(out.floats(), std::vector<float>(64, 0.0f));
}

// The reference judges other backends with 16-bit activations.
TEST(RmsNormTest, ReferenceTakesHalfPrecision) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    HostTensor x(dtype, {3, 100}), out(dtype, {3, 100}), weight(DType::kF32, {100});
    x.fill(1);
    weight.fill(2);
    HostTensor wide(DType::kF32, {3, 100}), expected(dtype, {3, 100});
    wide.fill_values(x.floats());
    OpRunner run(Backend::kRef);
    run(ops::RmsNorm{.x = x.view(), .weight = weight.view(), .out = out.view()});
    run(ops::RmsNorm{.x = wide.view(), .weight = weight.view(), .out = expected.view()});
    testing::expect_same_bits(out.floats(), expected.floats());
  }
}

TEST(AddRmsNormTest, MatchesReferenceAtAwkwardWidths) {
  for (const int32_t width : kWidths) {
    SCOPED_TRACE(width);
    const auto program = [width](OpRunner& run, int32_t rows) {
      Window residual(rows, width), delta(rows, width), out(rows, width);
      HostTensor weight(DType::kF32, {width});
      residual.fill(1);
      delta.fill(2);
      out.fill(3);
      weight.fill(4, 0.5f, 2);
      run(ops::AddRmsNorm{.residual = residual.view(),
                          .delta = delta.view(),
                          .weight = weight.view(),
                          .out = out.view()});
      std::vector<float> all;
      const std::vector<float> first = residual.floats(), second = out.floats();
      const auto stride = static_cast<size_t>(out.row_floats());
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
        for (const std::vector<float>* part : {&first, &second}) {
          all.insert(all.end(), part->begin() + static_cast<int64_t>(r * stride),
                     part->begin() + static_cast<int64_t>((r + 1) * stride));
        }
      }
      return all;
    };
    testing::check_rows(program, 9, 4e-6);
  }
}

TEST(GatedRmsNormTest, MatchesReferenceHeadByHead) {
  for (const int32_t dim : {1, 16, 100, 128}) {
    SCOPED_TRACE(dim);
    const auto program = [dim](OpRunner& run, int32_t rows) {
      Window x(rows, 3 * dim), gate(rows, 3 * dim), out(rows, 3 * dim);
      HostTensor weight(DType::kF32, {dim});
      x.fill(1, -3, 3);
      gate.fill(2, -6, 6);
      out.fill(3);
      weight.fill(4);
      run(ops::GatedRmsNorm{
          .x = x.view(), .gate = gate.view(), .weight = weight.view(), .out = out.view()});
      return out.floats();
    };
    testing::check_rows(program, 9, 1e-5);
  }
}

TEST(GatedRmsNormTest, RunsInPlaceAndNormsBeforeTheGate) {
  HostTensor x(DType::kF32, {1, 2}), gate(DType::kF32, {1, 2}), weight(DType::kF32, {2});
  x.fill_values({3, 4});  // mean of squares 12.5
  gate.fill_values({100, 0});
  weight.fill_values({2, 5});
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    HostTensor both = x;
    OpRunner run(backend);
    run(ops::GatedRmsNorm{.x = both.view(),
                          .gate = gate.view(),
                          .weight = weight.view(),
                          .out = both.view(),
                          .eps = 0});
    EXPECT_LE(testing::max_difference(both.floats(), {2 * 3 / std::sqrt(12.5f) * 100, 0}), 1e-4);
  }
}

TEST(RmsNormDeathTest, RefusesWrongShapesWhenPlanning) {
  HostTensor x(DType::kF32, {2, 8}), weight(DType::kF32, {7}), out(DType::kF32, {2, 8});
  OpRunner run(Backend::kCpu);
  EXPECT_DEATH(run(ops::RmsNorm{.x = x.view(), .weight = weight.view(), .out = out.view()}),
               "rms_norm: weight");
  HostTensor ids(DType::kI32, {2, 8}), weight8(DType::kF32, {8});
  EXPECT_DEATH(run(ops::RmsNorm{.x = ids.view(), .weight = weight8.view(), .out = out.view()}),
               "rms_norm: x");
  HostTensor half(DType::kBF16, {2, 8});
  EXPECT_DEATH(run(ops::RmsNorm{.x = x.view(), .weight = weight8.view(), .out = half.view()}),
               "f32 activations");
}

TEST(RmsNormTest, CountsCompulsoryBytes) {
  HostTensor x(DType::kBF16, {2, 8}), weight(DType::kF32, {8}), out(DType::kBF16, {2, 8});
  const Cost c = cost(ops::RmsNorm{.x = x.view(), .weight = weight.view(), .out = out.view()});
  EXPECT_EQ(c.bytes, 2u * 32 + 32);
  const Cost fused = cost(ops::AddRmsNorm{
      .residual = x.view(), .delta = x.view(), .weight = weight.view(), .out = out.view()});
  EXPECT_EQ(fused.bytes, 4u * 32 + 32);
}

}  // namespace
}  // namespace exode
