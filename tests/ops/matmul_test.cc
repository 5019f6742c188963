#include <gtest/gtest.h>

#include <cmath>

#include "ops/random_weight.h"

namespace exode::testing {
namespace {

std::vector<float> multiply(OpRunner& run, const HostTensor& x, const WeightView& w) {
  HostTensor out(DType::kF32, {x.cview().rows(), w.rows});
  for (int64_t i = 0; i < out.size(); ++i) out.set(i, NAN);
  run(ops::MatMul{.x = x.cview(), .w = w, .out = out.view()});
  return out.floats();
}

class MatMulTest : public ::testing::TestWithParam<WeightCase> {};

TEST_P(MatMulTest, EqualsTheReferenceForAwkwardShapes) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  for (const auto& [n, k] : std::vector<std::pair<int32_t, int32_t>>{
           {1, 128}, {7, 129}, {33, 100}, {130, 384}, {5, 1000}, {3, 2215}}) {
    const RandomWeight w(GetParam(), n, k, 11);
    for (int32_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 65}) {
      const HostTensor x = HostTensor(DType::kF32, {rows, k}).fill(5);
      SCOPED_TRACE(::testing::Message() << n << "x" << k << " rows " << rows);
      expect_products_close(multiply(cpu, x, w.view()), multiply(ref, x, w.view()), n);
    }
  }
}

// Few rows decode weights in registers, many in parts of K and panels of rows: K spans two parts
// and the rows span three panels.
TEST_P(MatMulTest, ARowHasTheSameBitsWhateverTheRowAndThreadCount) {
  if (fast_math()) GTEST_SKIP() << "promised for up to eight rows";
  const int32_t n = 70, k = 1157, all_rows = 133;
  const RandomWeight w(GetParam(), n, k, 3);
  const HostTensor x = HostTensor(DType::kF32, {all_rows, k}).fill(9);
  OpRunner one(Backend::kCpu, 1), two(Backend::kCpu, 2), five(Backend::kCpu, 5);
  const std::vector<float> all = multiply(two, x, w.view());
  EXPECT_EQ(all, multiply(one, x, w.view()));
  EXPECT_EQ(all, multiply(five, x, w.view()));
  for (const auto& [first, rows] : std::vector<std::pair<int32_t, int32_t>>{
           {0, 1}, {0, 2}, {1, 3}, {2, 4}, {60, 6}, {63, 8}, {5, 9}, {120, 13}, {132, 1}}) {
    HostTensor part(DType::kF32, {rows, k});
    for (int64_t i = 0; i < part.size(); ++i) part.set(i, x.get(int64_t{first} * k + i));
    const std::vector<float> few = multiply(two, part, w.view());
    EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin() + int64_t{first} * n))
        << rows << " rows from " << first;
  }
}

TEST_P(MatMulTest, StridedViewsStayInTheirColumns) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  const RandomWeight w(GetParam(), 12, 256, 4);
  HostTensor x = HostTensor(DType::kF32, {3, 300}).fill(1);
  HostTensor out(DType::kF32, {3, 20}), expected(DType::kF32, {3, 20});
  for (OpRunner* run : {&ref, &cpu}) {
    HostTensor& target = run == &ref ? expected : out;
    target.fill(2, 5, 6);
    (*run)(ops::MatMul{
        .x = x.view().slice_cols(20, 256), .w = w.view(), .out = target.view().slice_cols(4, 12)});
  }
  expect_products_close(out.floats(), expected.floats(), 20);
  EXPECT_EQ(out.get(3), expected.get(3));
  EXPECT_EQ(out.get(16), expected.get(16));
}

// Inputs of very different sizes share a row, and a row that is not finite has neighbours.
TEST_P(MatMulTest, LargeSmallAndNonFiniteInputs) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  const int32_t rows = 4, n = 10, k = 512;
  const RandomWeight w(GetParam(), n, k, 7);
  HostTensor x = HostTensor(DType::kF32, {rows, k}).fill(3);
  for (int32_t i = 0; i < k; ++i) {
    x.set(i, 0);
    x.set(k + i, x.get(k + i) * (i < 128 ? 1e-20f : i < 256 ? 1e10f : 1e-5f));
  }
  x.set(2 * k + 200, NAN);
  const std::vector<float> actual = multiply(cpu, x, w.view());
  const std::vector<float> expected = multiply(ref, x, w.view());
  const auto row = [&](const std::vector<float>& all, int32_t r) {
    return std::vector<float>(all.begin() + r * n, all.begin() + (r + 1) * n);
  };
  EXPECT_EQ(row(actual, 0), std::vector<float>(n, 0.0f));
  const double bound = testing::fast_math() ? 1e-6 : 1e-10;
  EXPECT_LE(nmse(row(actual, 1), row(expected, 1)), bound);
  for (const float value : row(actual, 2)) EXPECT_TRUE(std::isnan(value));
  EXPECT_LE(nmse(row(actual, 3), row(expected, 3)), bound);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MatMulTest, ::testing::ValuesIn(weight_cases()),
                         [](const auto& p) { return p.param.name(); });

TEST(Embedding, RowsOfEveryTypeAndPadding) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const RandomWeight w({WeightLayout::kDense, dtype}, 10, 37, 1);
    const HostTensor tokens = HostTensor(DType::kI32, {4}).fill_values({9, 0, -1, 3});
    HostTensor a(DType::kF32, {4, 37}), b(DType::kF32, {4, 37});
    a.fill(1);
    ref(ops::Embedding{.tokens = tokens.cview(), .table = w.view(), .out = a.view(), .scale = 2});
    cpu(ops::Embedding{.tokens = tokens.cview(), .table = w.view(), .out = b.view(), .scale = 2});
    EXPECT_EQ(a.floats(), b.floats());
    EXPECT_EQ(b.get(2 * 37), 0.0f);
  }
}

TEST(Embedding, RowsOfInt8Tables) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  const RandomWeight w({WeightLayout::kInt8Group, DType::kU8, 128}, 10, 200, 1);
  const HostTensor tokens = HostTensor(DType::kI32, {3}).fill_values({9, -1, 3});
  HostTensor a(DType::kF32, {3, 200}), b(DType::kF32, {3, 200});
  ref(ops::Embedding{.tokens = tokens.cview(), .table = w.view(), .out = a.view(), .scale = 2});
  cpu(ops::Embedding{.tokens = tokens.cview(), .table = w.view(), .out = b.view(), .scale = 2});
  EXPECT_LE(nmse(b.floats(), a.floats()), 1e-13);
  EXPECT_NE(b.get(0), 0.0f);
  EXPECT_EQ(b.get(200), 0.0f);
}

TEST(MatMulDeath, WrongShapesAreNamed) {
  OpRunner cpu(Backend::kCpu);
  const RandomWeight w({WeightLayout::kDense, DType::kF32}, 4, 8, 1);
  HostTensor x(DType::kF32, {2, 9}), out(DType::kF32, {2, 4});
  EXPECT_DEATH(cpu(ops::MatMul{.x = x.cview(), .w = w.view(), .out = out.view()}), "matmul: x");
}

TEST(MatMulDeath, WeightsThatBreakTheirLayoutAreRefused) {
  OpRunner cpu(Backend::kCpu);
  HostTensor x(DType::kF32, {2, 256}), out(DType::kF32, {2, 4});
  const auto multiply_by = [&](const WeightView& w) {
    cpu(ops::MatMul{.x = x.cview(), .w = w, .out = out.view()});
  };
  const RandomWeight int4({WeightLayout::kInt4Group, DType::kU8, 128, true}, 4, 256, 1);
  WeightView w = int4.view();
  w.group = 96;
  EXPECT_DEATH(multiply_by(w), "int4 group 96");
  w = int4.view();
  w.scales.shape.dim[1] = 1;
  EXPECT_DEATH(multiply_by(w), "matmul: w");
  w = int4.view();
  w.zeros.dtype = DType::kF32;
  EXPECT_DEATH(multiply_by(w), "matmul: w");
  const RandomWeight int8({WeightLayout::kInt8Group, DType::kU8, 128}, 4, 256, 1);
  w = int8.view();
  w.group = 64;
  EXPECT_DEATH(multiply_by(w), "int8 group 64");
  w = int8.view();
  w.codes.shape.dim[1] = 128;
  EXPECT_DEATH(multiply_by(w), "matmul: w");
  const RandomWeight fp8({WeightLayout::kFp8Block, DType::kFp8E4M3, 128}, 4, 256, 1);
  w = fp8.view();
  w.group = 64;
  EXPECT_DEATH(multiply_by(w), "fp8 block 64");
}

TEST(MatMulDeath, TheCpuTakesOnlyF32Activations) {
  OpRunner cpu(Backend::kCpu);
  const RandomWeight w({WeightLayout::kDense, DType::kF32}, 4, 8, 1);
  HostTensor x(DType::kBF16, {2, 8}), out(DType::kF32, {2, 4});
  EXPECT_DEATH(cpu(ops::MatMul{.x = x.cview(), .w = w.view(), .out = out.view()}), "f32");
}

}  // namespace
}  // namespace exode::testing
