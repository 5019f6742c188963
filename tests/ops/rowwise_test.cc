// Norms, activations, gathers and rotary embedding against the reference at awkward widths.
#include <gtest/gtest.h>

#include "ops/harness.h"

namespace exode::testing {
namespace {

constexpr int32_t kWidths[] = {1, 7, 64, 100, 384, 5120};
constexpr int32_t kRows = 5;

// Runs `op(runner, out)` on both backends and compares what they leave in `out`.
template <class Run>
void compare(Shape shape, const Run& op, double bound = 1e-11) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu, 2), one(Backend::kCpu, 1);
  HostTensor a = HostTensor(DType::kF32, shape).fill(77), b = HostTensor(DType::kF32, shape).fill(77),
             c = HostTensor(DType::kF32, shape).fill(77);
  op(ref, a);
  op(cpu, b);
  op(one, c);
  EXPECT_LE(nmse(b.floats(), a.floats()), bound);
  EXPECT_EQ(b.floats(), c.floats()) << "thread count";
}

HostTensor random(int32_t rows, int32_t cols, uint64_t seed, float scale = 3) {
  return HostTensor(DType::kF32, {rows, cols}).fill(seed, -scale, scale);
}

HostTensor vector(int32_t n, uint64_t seed) { return HostTensor(DType::kF32, {n}).fill(seed); }

TEST(RmsNorm, EqualsTheReference) {
  for (int32_t width : kWidths) {
    const HostTensor x = random(kRows, width, 1), w = vector(width, 2);
    for (float bias : {0.0f, 1.0f}) {
      compare({kRows, width}, [&](OpRunner& run, HostTensor& out) {
        run(ops::RmsNorm{.x = x.cview(), .weight = w.cview(), .out = out.view(), .weight_bias = bias});
      });
    }
  }
}

TEST(RmsNorm, InPlaceAndZeroWeightGivesUnitScaleWithBiasOne) {
  OpRunner cpu(Backend::kCpu);
  HostTensor x = random(1, 256, 3), w(DType::kF32, {256});
  cpu(ops::RmsNorm{.x = x.cview(), .weight = w.cview(), .out = x.view(), .weight_bias = 1});
  double sum = 0;
  for (float v : x.floats()) sum += static_cast<double>(v) * v;
  EXPECT_NEAR(sum / 256, 1.0, 1e-5);
}

TEST(AddRmsNorm, UpdatesTheResidualAndNormalises) {
  for (int32_t width : kWidths) {
    const HostTensor delta = random(kRows, width, 4), w = vector(width, 5);
    compare({kRows, width}, [&](OpRunner& run, HostTensor& residual) {
      HostTensor out(DType::kF32, {kRows, width});
      run(ops::AddRmsNorm{.residual = residual.view(), .delta = delta.cview(), .weight = w.cview(), .out = out.view()});
      for (int64_t i = 0; i < out.size(); ++i) residual.set(i, residual.get(i) + 10 * out.get(i));
    });
  }
}

TEST(Elementwise, EqualTheReference) {
  for (int32_t width : kWidths) {
    const HostTensor wide = random(kRows, 2 * width, 6, 20), x = random(kRows, width, 7, 20), gate = random(kRows, 1, 8);
    compare({kRows, width}, [&](OpRunner& run, HostTensor& out) {
      run(ops::SwiGlu{.gate_up = wide.cview(), .out = out.view()});
    });
    compare({kRows, width}, [&](OpRunner& run, HostTensor& out) {
      run(ops::SigmoidGate{.x = out.view(), .gate = x.cview()});
    });
    compare({kRows, width}, [&](OpRunner& run, HostTensor& out) {
      run(ops::AddGated{.out = out.view(), .x = x.cview(), .gate_logit = gate.cview()});
    });
    compare({kRows, width}, [&](OpRunner& run, HostTensor& out) {
      run(ops::Add{.x = out.view(), .delta = x.cview()});
    });
  }
}

TEST(Elementwise, ExtremeValuesStayFinite) {
  OpRunner cpu(Backend::kCpu);
  HostTensor x = HostTensor(DType::kF32, {1, 8}).fill_values({-1e4f, 1e4f, -90, 90, 1, 1, 1, 1});
  HostTensor out(DType::kF32, {1, 4});
  cpu(ops::SwiGlu{.gate_up = x.cview(), .out = out.view()});
  EXPECT_NEAR(out.get(0), 0, 1e-20);
  EXPECT_EQ(out.get(1), 1e4f);
  EXPECT_NEAR(out.get(2), 0, 1e-20);
  EXPECT_EQ(out.get(3), 90.0f);
}

TEST(GatherRows, PicksRowsAndZeroesPadding) {
  const HostTensor x = random(4, 33, 9), index = HostTensor(DType::kI32, {3}).fill_values({3, -1, 0});
  compare({3, 33}, [&](OpRunner& run, HostTensor& out) {
    run(ops::GatherRows{.x = x.cview(), .index = index.cview(), .out = out.view()});
  });
}

TEST(GatedRmsNorm, EqualsTheReference) {
  for (int32_t dim : {16, 128, 100}) {
    const HostTensor x = random(kRows, 3 * dim, 1), gate = random(kRows, 3 * dim, 2), w = vector(dim, 3);
    compare({kRows, 3 * dim}, [&](OpRunner& run, HostTensor& out) {
      run(ops::GatedRmsNorm{.x = x.cview(), .gate = gate.cview(), .weight = w.cview(), .out = out.view()});
    });
  }
}

TEST(QkNormRope, EqualsTheReferenceAndSkipsPadding) {
  for (const auto& [dim, rotary] : std::vector<std::pair<int32_t, int32_t>>{{64, 64}, {128, 128}, {256, 64}}) {
    const HostTensor wq = vector(dim, 1), wk = vector(dim, 2);
    HostTensor inv(DType::kF32, {rotary / 2});
    for (int32_t j = 0; j < rotary / 2; ++j) inv.set(j, std::pow(1e4f, -2.0f * static_cast<float>(j) / static_cast<float>(rotary)));
    const HostTensor positions = HostTensor(DType::kI32, {4}).fill_values({0, 1, -1, 1000});
    for (bool norm : {false, true}) {
      compare({4, 4 * dim}, [&](OpRunner& run, HostTensor& t) {
        run(ops::QkNormRope{.q = t.view().slice_cols(0, 3 * dim), .k = t.view().slice_cols(3 * dim, dim),
                            .q_weight = norm ? wq.cview() : ConstTensorView{}, .k_weight = norm ? wk.cview() : ConstTensorView{},
                            .inv_freq = inv.cview(), .positions = positions.cview(), .head_dim = dim, .weight_bias = 1});
      }, 1e-9);  // f32 angles
    }
  }
}

}  // namespace
}  // namespace exode::testing
