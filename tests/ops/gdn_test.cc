// Gated DeltaNet: recurrence and chunks against the double-precision reference, state carried over
// every way of cutting a sequence.
#include <gtest/gtest.h>

#include <numeric>

#include "ops/harness.h"

namespace exode::testing {
namespace {

HostTensor ints(const std::vector<float>& values) {
  return HostTensor(DType::kI32, {static_cast<int32_t>(values.size())}).fill_values(values);
}

// Device-side description of slices, kept alive.
struct Seqs {
  HostTensor first, count, slot, fresh;
  SeqRows view() const { return {first.cview(), count.cview(), slot.cview(), fresh.cview()}; }
};

struct Delta {
  GdnShape shape;
  int32_t rows = 0;
  HostTensor qkv, g, beta;

  Delta(GdnShape s, int32_t r, uint64_t seed)
      : shape(s),
        rows(r),
        qkv(DType::kF32, {r, s.conv_channels()}),
        g(DType::kF32, {r, s.value_heads}),
        beta(DType::kF32, {r, s.value_heads}) {
    qkv.fill(seed);
    g.fill(seed + 1, -2.5f, 0);
    beta.fill(seed + 2, 0, 1);
  }

  HostTensor state() const {
    return HostTensor(DType::kF32, {2, shape.value_width(), shape.key_dim}).fill(99, -0.3f, 0.3f);
  }

  // Rows [from, from + n) as one slice of slot 1 that starts at `position`; `out` is whole.
  void run(OpRunner& op, HostTensor& state, HostTensor& out, int32_t from, int32_t n,
           int32_t position, bool fresh) const {
    HostTensor positions(DType::kI32, {n});
    for (int32_t i = 0; i < n; ++i) positions.set(i, static_cast<float>(position + i));
    const Seqs seqs{ints({0}), ints({static_cast<float>(n)}), ints({1}),
                    ints({fresh ? 1.0f : 0.0f})};
    op(ops::GatedDelta{.qkv = qkv.cview().slice_rows(from, n),
                       .g = g.cview().slice_rows(from, n),
                       .beta = beta.cview().slice_rows(from, n),
                       .positions = positions.cview(),
                       .state = {.base = state.view(), .conv_tail = {}},
                       .seqs = seqs.view(),
                       .shape = shape,
                       .out = out.view().slice_rows(from, n)});
  }
};

float worst(const HostTensor& a, const HostTensor& b) {
  float w = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const float d = std::fabs(a.get(i) - b.get(i));
    w = std::isfinite(d) ? std::max(w, d) : INFINITY;
  }
  return w;
}

class GatedDeltaTest : public ::testing::TestWithParam<GdnShape> {
 protected:
  void SetUp() override {
    if (!is_built(GetParam())) GTEST_SKIP() << "not built for this device";
  }
};

TEST_P(GatedDeltaTest, EqualsTheReferenceForAnyLengthStartAndState) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  for (int32_t rows : {1, 5, 63, 64, 65, 130, 200}) {
    const Delta d(GetParam(), rows, 42);
    for (int32_t position : {0, 10, 64}) {
      for (bool fresh : {false, true}) {
        HostTensor s1 = d.state(), s2 = d.state();
        HostTensor o1(DType::kF32, {rows, d.shape.value_width()}),
            o2(DType::kF32, {rows, d.shape.value_width()});
        o2.fill(1);
        d.run(ref, s1, o1, 0, rows, position, fresh);
        d.run(cpu, s2, o2, 0, rows, position, fresh);
        EXPECT_LE(worst(o2, o1), 1e-4f) << rows << " rows at " << position;
        EXPECT_LE(worst(s2, s1), 1e-4f) << rows << " rows at " << position;
      }
    }
  }
}

TEST_P(GatedDeltaTest, AnyCutGivesTheSameResult) {
  OpRunner cpu(Backend::kCpu);
  const Delta d(GetParam(), 150, 7);
  HostTensor whole_state = d.state();
  HostTensor whole(DType::kF32, {150, d.shape.value_width()});
  d.run(cpu, whole_state, whole, 0, 150, 0, true);
  for (int32_t cut : {1, 7, 64, 65, 149}) {
    HostTensor state = d.state();
    HostTensor out(DType::kF32, {150, d.shape.value_width()});
    for (int32_t from = 0; from < 150; from += cut)
      d.run(cpu, state, out, from, std::min(cut, 150 - from), from, from == 0);
    EXPECT_LE(worst(out, whole), 1e-4f) << cut;
    EXPECT_LE(worst(state, whole_state), 1e-4f) << cut;
  }
}

TEST_P(GatedDeltaTest, ThreadsAndNeighboursDoNotChangeBits) {
  const Delta d(GetParam(), 70, 8);
  OpRunner one(Backend::kCpu, 1), three(Backend::kCpu, 3);
  HostTensor s1 = d.state(), s2 = d.state();
  HostTensor o1(DType::kF32, {70, d.shape.value_width()}),
      o2(DType::kF32, {70, d.shape.value_width()});
  d.run(one, s1, o1, 0, 70, 0, true);
  HostTensor positions(DType::kI32, {70});
  for (int32_t i = 0; i < 70; ++i) positions.set(i, static_cast<float>(i));
  const Seqs seqs{ints({0, 0}), ints({70, 0}), ints({1, 0}),
                  ints({1, 0})};  // the second is padding
  three(ops::GatedDelta{.qkv = d.qkv.cview(),
                        .g = d.g.cview(),
                        .beta = d.beta.cview(),
                        .positions = positions.cview(),
                        .state = {.base = s2.view(), .conv_tail = {}},
                        .seqs = seqs.view(),
                        .shape = d.shape,
                        .out = o2.view()});
  EXPECT_EQ(o1.floats(), o2.floats());
  EXPECT_EQ(s1.floats(), s2.floats());
}

INSTANTIATE_TEST_SUITE_P(Shapes, GatedDeltaTest,
                         ::testing::Values(GdnShape{2, 6, 128, 128}, GdnShape{2, 2, 128, 128},
                                           GdnShape{1, 3, 64, 32}),
                         [](const auto& p) {
                           return "heads" + std::to_string(p.param.value_heads) + "dim" +
                                  std::to_string(p.param.key_dim);
                         });

TEST(GdnGates, EqualTheReferenceAtExtremes) {
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  const HostTensor a = HostTensor(DType::kF32, {3, 5}).fill(1, -50, 50),
                   b = HostTensor(DType::kF32, {3, 5}).fill(2, -50, 50);
  const HostTensor a_log = HostTensor(DType::kF32, {5}).fill(3, -3, 2),
                   dt = HostTensor(DType::kF32, {5}).fill(4);
  HostTensor g1(DType::kF32, {3, 5}), b1(DType::kF32, {3, 5}), g2(DType::kF32, {3, 5}),
      b2(DType::kF32, {3, 5});
  ref(ops::GdnGates{.a = a.cview(),
                    .b = b.cview(),
                    .a_log = a_log.cview(),
                    .dt_bias = dt.cview(),
                    .g = g1.view(),
                    .beta = b1.view()});
  cpu(ops::GdnGates{.a = a.cview(),
                    .b = b.cview(),
                    .a_log = a_log.cview(),
                    .dt_bias = dt.cview(),
                    .g = g2.view(),
                    .beta = b2.view()});
  EXPECT_LE(nmse(g2.floats(), g1.floats()), 1e-12);
  EXPECT_LE(nmse(b2.floats(), b1.floats()), 1e-12);
}

TEST(CausalConv, AnyCutEqualsTheReferenceOfTheWhole) {
  constexpr int32_t kChannels = 37, kRows = 11;
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  const HostTensor x = HostTensor(DType::kF32, {kRows, kChannels}).fill(1),
                   w = HostTensor(DType::kF32, {kChannels, 4}).fill(2);
  const auto run = [&](OpRunner& op, HostTensor& tail, HostTensor& out, int32_t from, int32_t n,
                       bool fresh) {
    const Seqs seqs{ints({0}), ints({static_cast<float>(n)}), ints({1}),
                    ints({fresh ? 1.0f : 0.0f})};
    op(ops::CausalConv{.x = x.cview().slice_rows(from, n),
                       .weight = w.cview(),
                       .state = {.base = {}, .conv_tail = tail.view()},
                       .seqs = seqs.view(),
                       .out = out.view().slice_rows(from, n)});
  };
  for (bool fresh : {true, false}) {
    HostTensor tail = HostTensor(DType::kF32, {2, 3, kChannels}).fill(5),
               whole(DType::kF32, {kRows, kChannels});
    run(ref, tail, whole, 0, kRows, fresh);
    for (int32_t cut : {1, 2, 3, 4, 11}) {
      HostTensor tail2 = HostTensor(DType::kF32, {2, 3, kChannels}).fill(5),
                 out(DType::kF32, {kRows, kChannels});
      for (int32_t from = 0; from < kRows; from += cut)
        run(cpu, tail2, out, from, std::min(cut, kRows - from), fresh && from == 0);
      EXPECT_LE(nmse(out.floats(), whole.floats()), 1e-12) << cut;
      EXPECT_EQ(tail2.floats(), tail.floats()) << cut;
    }
  }
}

}  // namespace
}  // namespace exode::testing
