// The whole Gated DeltaNet op: against the reference, against its parts called one by one, and over
// every way of cutting slices.
#include <cmath>

#include "ops/compare.h"
#include "ops/gdn.h"

namespace exode {
namespace {

using testing::HostTensor;
using testing::indices;
using testing::OpRunner;

struct Slice {
  int32_t rows, slot, position;
  bool fresh;
};

constexpr int32_t kSlots = 5, kWidth = 4;

struct State {
  HostTensor base, tail;
  explicit State(const GdnShape& s)
      : base(DType::kF32, {kSlots, s.value_width(), s.key_dim}),
        tail(DType::kF32, {kSlots, kWidth - 1, s.conv_channels()}) {
    base.fill(1, -0.3f, 0.3f);
    tail.fill(2);
  }
  StateView view() { return {.base = base.view(), .conv_tail = tail.view()}; }
  std::vector<float> floats() const {
    std::vector<float> all = base.floats();
    const std::vector<float> more = tail.floats();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

// The inputs of `rows` tokens, of which steps take some.
struct Tokens {
  GdnShape shape;
  HostTensor qkvz, ba, conv, a_log, dt_bias, norm, out;

  // Large gates' inputs make tokens forget everything or nothing.
  Tokens(const GdnShape& s, int32_t rows, float gates = 3)
      : shape(s),
        qkvz(DType::kF32, {rows, s.conv_channels() + s.value_width()}),
        ba(DType::kF32, {rows, 2 * s.value_heads}),
        conv(DType::kF32, {s.conv_channels(), kWidth}),
        a_log(DType::kF32, {s.value_heads}),
        dt_bias(DType::kF32, {s.value_heads}),
        norm(DType::kF32, {s.value_dim}),
        out(DType::kF32, {rows, s.value_width()}) {
    qkvz.fill(11, -1.5f, 1.5f);
    ba.fill(12, -gates, gates);
    conv.fill(13, -0.6f, 0.6f);
    a_log.fill(14);
    dt_bias.fill(15);
    norm.fill(16);
  }

  // Slices lie one after another from row `from` on.
  void run(OpRunner& op, State& state, const std::vector<Slice>& slices, int32_t from = 0) {
    std::vector<int32_t> first, count, slot, fresh, positions;
    int32_t rows = 0;
    for (const Slice& s : slices) {
      first.push_back(s.rows > 0 ? rows : 0);
      count.push_back(s.rows);
      slot.push_back(s.slot);
      fresh.push_back(s.fresh ? 1 : 0);
      for (int32_t i = 0; i < s.rows; ++i) positions.push_back(s.position + i);
      rows += s.rows;
    }
    HostTensor seqs[] = {indices(first), indices(count), indices(slot), indices(fresh)};
    HostTensor places = indices(positions);
    op(ops::GatedDeltaNet{.qkvz = qkvz.view().slice_rows(from, rows),
                          .ba = ba.view().slice_rows(from, rows),
                          .conv = conv.view(),
                          .a_log = a_log.view(),
                          .dt_bias = dt_bias.view(),
                          .norm = norm.view(),
                          .positions = places.view(),
                          .state = state.view(),
                          .seqs = {seqs[0].view(), seqs[1].view(), seqs[2].view(), seqs[3].view()},
                          .shape = shape,
                          .out = out.view().slice_rows(from, rows)});
  }
};

const GdnShape kShapes[] = {{2, 6, 128, 128}, {2, 2, 128, 128}, {1, 3, 64, 32}};

// As exact as sums in f32 are, or as operands of 16 bits.
void expect_close(const HostTensor& actual, const HostTensor& expected) {
  const double error = std::sqrt(testing::nmse(actual.floats(), expected.floats()));
  EXPECT_LE(error, testing::fast_math() ? 2e-3 : 3e-5);
}

void expect_reference(const GdnShape& shape, const std::vector<Slice>& step, float gates = 3) {
  SCOPED_TRACE(::testing::Message() << shape.value_heads << ' ' << shape.key_dim << ", first slice "
                                    << step.front().rows << " rows at " << step.front().position);
  int32_t rows = 0;
  for (const Slice& slice : step) rows += slice.rows;
  OpRunner ref(Backend::kRef), tested(Backend::kCpu);
  Tokens expected(shape, rows, gates), actual(shape, rows, gates);
  State expected_state(shape), actual_state(shape);
  expected.run(ref, expected_state, step);
  actual.run(tested, actual_state, step);
  expect_close(actual.out, expected.out);
  expect_close(actual_state.base, expected_state.base);
  testing::expect_same_bits(actual_state.tail.floats(), expected_state.tail.floats());
}

TEST(GdnNetTest, MatchesReferenceForManySlices) {
  for (const GdnShape& shape : kShapes) {
    expect_reference(shape, {{1, 3, 77, false},
                             {70, 0, 0, true},
                             {0, 4, 0, false},
                             {130, 1, 40, false},
                             {3, 2, 62, false}});
    expect_reference(shape,
                     {{1, 3, 77, false}, {8, 1, 61, false}, {0, 0, 0, false}, {2, 0, 0, true}});
  }
}

TEST(GdnNetTest, MatchesReferenceForAnyLength) {
  for (const GdnShape& shape : {GdnShape{1, 3, 128, 128}, GdnShape{1, 5, 128, 128}}) {
    for (const int32_t rows : {1, 2, 3, 8, 9, 63, 64, 65, 66, 67, 128, 200}) {
      for (const bool fresh : {false, true}) {
        expect_reference(shape, {{rows, 2, fresh ? 0 : 37, fresh}});
      }
    }
  }
}

TEST(GdnNetTest, MatchesReferenceWhenTokensForgetEverything) {
  for (const float gates : {0.0f, 100.0f, 20'000.0f}) {
    expect_reference({1, 2, 128, 128}, {{5, 0, 3, false}}, gates);
    expect_reference({1, 2, 128, 128}, {{150, 1, 3, false}}, gates);
  }
}

// Decoding goes on beside a prompt as it does alone.
TEST(GdnNetTest, ShortSlicesDoNotDependOnLongOnes) {
  const GdnShape shape{1, 3, 128, 128};
  for (const int32_t rows : {1, 8}) {
    OpRunner run(Backend::kCpu);
    Tokens alone(shape, rows), beside(shape, rows + 150);
    State alone_state(shape), beside_state(shape);
    alone.run(run, alone_state, {{rows, 1, 100, false}});
    beside.run(run, beside_state, {{rows, 1, 100, false}, {150, 2, 10, false}});
    std::vector<float> first = beside.out.floats();
    first.resize(static_cast<size_t>(rows * shape.value_width()));
    testing::expect_same_bits(first, alone.out.floats());
  }
}

// u ‖ z and b ‖ a: which columns are which, and what feeds what.
TEST(GdnNetTest, IsItsPartsInOrder) {
  const GdnShape s{2, 6, 32, 32};
  constexpr int32_t kRows = 5;
  const int32_t channels = s.conv_channels(), heads = s.value_heads;
  OpRunner run(Backend::kRef);
  Tokens net(s, kRows), parts(s, kRows);
  State net_state(s), parts_state(s);
  net.run(run, net_state, {{kRows, 2, 7, false}});

  HostTensor first = indices({0}), count = indices({kRows}), slot = indices({2}),
             fresh = indices({0}), positions = indices({7, 8, 9, 10, 11});
  const SeqRows seqs{first.view(), count.view(), slot.view(), fresh.view()};
  HostTensor mixed(DType::kF32, {kRows, channels}), g(DType::kF32, {kRows, heads}),
      beta(DType::kF32, {kRows, heads});
  run(ops::CausalConv{.x = parts.qkvz.view().slice_cols(0, channels),
                      .weight = parts.conv.view(),
                      .state = parts_state.view(),
                      .seqs = seqs,
                      .out = mixed.view()});
  run(ops::GdnGates{.a = parts.ba.view().slice_cols(heads, heads),
                    .b = parts.ba.view().slice_cols(0, heads),
                    .a_log = parts.a_log.view(),
                    .dt_bias = parts.dt_bias.view(),
                    .g = g.view(),
                    .beta = beta.view()});
  run(ops::GatedDelta{.qkv = mixed.view(),
                      .g = g.view(),
                      .beta = beta.view(),
                      .positions = positions.view(),
                      .state = parts_state.view(),
                      .seqs = seqs,
                      .shape = s,
                      .out = parts.out.view()});
  run(ops::GatedRmsNorm{.x = parts.out.view(),
                        .gate = parts.qkvz.view().slice_cols(channels, s.value_width()),
                        .weight = parts.norm.view(),
                        .out = parts.out.view()});
  testing::expect_same_bits(net.out.floats(), parts.out.floats());
  testing::expect_same_bits(net_state.floats(), parts_state.floats());
}

TEST(GdnNetTest, AnyCutGivesTheSameResult) {
  for (const GdnShape& shape : kShapes) {
    OpRunner run(Backend::kCpu);
    Tokens whole(shape, 150);
    State whole_state(shape);
    whole.run(run, whole_state, {{150, 1, 0, true}});
    for (const int32_t cut : {1, 7, 64, 65, 149}) {
      Tokens pieces(shape, 150);
      State state(shape);
      for (int32_t from = 0; from < 150; from += cut) {
        pieces.run(run, state, {{std::min(cut, 150 - from), 1, from, from == 0}}, from);
      }
      SCOPED_TRACE(cut);
      expect_close(pieces.out, whole.out);
      expect_close(state.base, whole_state.base);
      testing::expect_same_bits(state.tail.floats(), whole_state.tail.floats());
    }
  }
}

// Verifying a draft of up to eight tokens leaves the bits of decoding them one by one.
TEST(GdnNetTest, FewRowsAreTheSameOneByOne) {
  for (const GdnShape& shape : kShapes) {
    OpRunner run(Backend::kCpu);
    for (const int32_t rows : {2, 3, 8}) {
      Tokens whole(shape, rows), single(shape, rows);
      State whole_state(shape), single_state(shape);
      whole.run(run, whole_state, {{rows, 1, 61, false}});
      for (int32_t r = 0; r < rows; ++r) {
        single.run(run, single_state, {{1, 1, 61 + r, false}}, r);
      }
      testing::expect_same_bits(single.out.floats(), whole.out.floats());
      testing::expect_same_bits(single_state.floats(), whole_state.floats());
    }
  }
}

}  // namespace
}  // namespace exode
