#include "ops/elementwise.h"

#include "ops/compare.h"

namespace exode {
namespace {

using testing::HostTensor;
using testing::OpRunner;
using testing::Window;

constexpr int32_t kWidths[] = {1, 7, 64, 100, 384, 5120};
constexpr int32_t kRows = 9;

TEST(ElementwiseTest, SwiGluMatchesReference) {
  for (const int32_t width : kWidths) {
    SCOPED_TRACE(width);
    const auto program = [width](OpRunner& run, int32_t rows) {
      Window gate_up(rows, 2 * width), out(rows, width);
      gate_up.fill(1, -8, 8);
      out.fill(2);
      run(ops::SwiGlu{.gate_up = gate_up.view(), .out = out.view()});
      return out.floats();
    };
    testing::check_rows(program, kRows, 2e-5);
  }
}

TEST(ElementwiseTest, SigmoidGateMatchesReference) {
  for (const int32_t width : kWidths) {
    SCOPED_TRACE(width);
    const auto program = [width](OpRunner& run, int32_t rows) {
      Window x(rows, width), gate(rows, width);
      x.fill(1);
      gate.fill(2, -12, 12);
      run(ops::SigmoidGate{.x = x.view(), .gate = gate.view()});
      return x.floats();
    };
    testing::check_rows(program, kRows, 5e-7);
  }
}

TEST(ElementwiseTest, AddGatedMatchesReference) {
  for (const int32_t width : kWidths) {
    SCOPED_TRACE(width);
    const auto program = [width](OpRunner& run, int32_t rows) {
      Window out(rows, width), x(rows, width), logit(rows, 1);
      out.fill(1);
      x.fill(2);
      logit.fill(3, -6, 6);
      run(ops::AddGated{.out = out.view(), .x = x.view(), .gate_logit = logit.view()});
      return out.floats();
    };
    testing::check_rows(program, kRows, 5e-7);
  }
}

TEST(ElementwiseTest, AddMatchesReference) {
  for (const int32_t width : kWidths) {
    SCOPED_TRACE(width);
    const auto program = [width](OpRunner& run, int32_t rows) {
      Window x(rows, width), delta(rows, width);
      x.fill(1);
      delta.fill(2);
      run(ops::Add{.x = x.view(), .delta = delta.view()});
      return x.floats();
    };
    testing::check_rows(program, kRows, 0);
  }
}

TEST(ElementwiseTest, GatherRowsCopiesAndZeroes) {
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    for (const int32_t width : {1, 7, 100}) {
      Window x(4, width), out(5, width);
      x.fill(1);
      out.fill(2);
      const std::vector<float> source = x.floats(), before = out.floats();
      const std::vector<int32_t> picks = {3, -1, 0, 3, 1};
      HostTensor index = testing::indices(picks);
      OpRunner run(backend);
      run(ops::GatherRows{.x = x.view(), .index = index.view(), .out = out.view()});
      std::vector<float> expected = before;
      const auto stride = static_cast<size_t>(x.row_floats());
      for (size_t i = 0; i < picks.size(); ++i) {
        for (size_t c = 0; c < static_cast<size_t>(width); ++c) {
          const size_t from =
              static_cast<size_t>(std::max(picks[i], 0)) * stride + Window::kLeft + c;
          expected[i * stride + Window::kLeft + c] = picks[i] < 0 ? 0 : source[from];
        }
      }
      testing::expect_same_bits(out.floats(), expected);
    }
  }
}

TEST(ElementwiseTest, TakeTokensReplacesWhereASourceIsGiven) {
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    OpRunner run(backend);
    HostTensor tokens = testing::indices({5, -1, 7, 9}), source = testing::indices({-1, 2, 0, -1});
    HostTensor drawn = testing::indices({100, 101, 102});
    run(ops::TakeTokens{.tokens = tokens.view(), .source = source.view(), .drawn = drawn.view()});
    EXPECT_EQ(tokens.floats(), (std::vector<float>{5, 102, 100, 9}));
  }
}

// Outliers of real checkpoints: the exponential must saturate, not wrap.
TEST(ElementwiseTest, GatesSaturateAtLargeInputs) {
  const std::vector<float> gates = {-1e30f, -1e4f, -300, -178, -150, -104, -89,  -88,
                                    -20,    0,     20,   88,   150,  300,  1e4f, 1e30f};
  const auto width = static_cast<int32_t>(gates.size());
  HostTensor gate_up(DType::kF32, {1, 2 * width}), out(DType::kF32, {1, width});
  HostTensor gate(DType::kF32, {1, width}), x(DType::kF32, {1, width});
  std::vector<float> both = gates;
  both.resize(2 * gates.size(), 1.0f);
  gate_up.fill_values(both);
  gate.fill_values(gates);
  x.fill_values(std::vector<float>(gates.size(), 1.0f));
  OpRunner run(Backend::kCpu);
  run(ops::SwiGlu{.gate_up = gate_up.view(), .out = out.view()});
  run(ops::SigmoidGate{.x = x.view(), .gate = gate.view()});
  for (size_t i = 0; i < gates.size(); ++i) {
    SCOPED_TRACE(gates[i]);
    const double sigmoid = 1 / (1 + std::exp(-static_cast<double>(gates[i])));
    const auto at = static_cast<int64_t>(i);
    EXPECT_NEAR(x.get(at), sigmoid, 1e-6);
    const double silu = gates[i] * sigmoid;
    EXPECT_NEAR(out.get(at), silu, 1e-6 * std::max(1.0, std::abs(silu)));
  }
}

TEST(ElementwiseTest, SigmoidAndSiluAreAccurate) {
  constexpr int32_t kCount = 20'000;
  HostTensor gate_up(DType::kF32, {1, 2 * kCount}), out(DType::kF32, {1, kCount});
  for (int32_t i = 0; i < kCount; ++i) {
    gate_up.set(i, -30.0f + 60.0f * static_cast<float>(i) / kCount);
    gate_up.set(kCount + i, 1);
  }
  OpRunner run(Backend::kCpu);
  run(ops::SwiGlu{.gate_up = gate_up.view(), .out = out.view()});
  double worst = 0;
  for (int32_t i = 0; i < kCount; ++i) {
    const double x = gate_up.get(i), silu = x / (1 + std::exp(-x));
    worst = std::max(worst, std::abs(out.get(i) - silu) / std::max(std::abs(silu), 1e-30));
  }
  EXPECT_LE(worst, 4 * 0x1p-23);  // exp, add, divide, multiply: half to one unit each
}

TEST(ElementwiseDeathTest, RefusesMixedDtypes) {
  HostTensor x(DType::kF32, {2, 8}), half(DType::kBF16, {2, 8});
  OpRunner run(Backend::kCpu);
  EXPECT_DEATH(run(ops::Add{.x = x.view(), .delta = half.view()}), "add: delta");
  EXPECT_DEATH(run(ops::SigmoidGate{.x = x.view(), .gate = half.view()}), "sigmoid_gate: gate");
}

}  // namespace
}  // namespace exode
