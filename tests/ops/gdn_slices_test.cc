// Gated DeltaNet over several slices in one op: slots, fresh starts, strided inputs, head mapping,
// and decays at their extremes.
#include "ops/compare.h"
#include "ops/gdn.h"

namespace exode {
namespace {

using testing::HostTensor;
using testing::OpRunner;
using testing::Window;

struct Slice {
  int32_t rows, slot, first_position;
  bool fresh;
};

// The device-side description of slices that lie one after another.
class Slices {
 public:
  explicit Slices(const std::vector<Slice>& slices) {
    std::vector<int32_t> first, count, slot, fresh, positions;
    for (const Slice& s : slices) {
      first.push_back(rows_);
      count.push_back(s.rows);
      slot.push_back(s.slot);
      fresh.push_back(s.fresh ? 1 : 0);
      for (int32_t i = 0; i < s.rows; ++i) positions.push_back(s.first_position + i);
      rows_ += s.rows;
    }
    positions.resize(static_cast<size_t>(rows_) + 1);
    for (const auto& values : {first, count, slot, fresh, positions}) {
      tensors_.push_back(testing::indices(values));
    }
  }
  SeqRows seqs() { return {view(0), view(1), view(2), view(3)}; }
  ConstTensorView positions() { return tensors_[4].view().slice_rows(0, rows_); }
  int32_t rows() const { return rows_; }

 private:
  ConstTensorView view(size_t i) { return tensors_[i].view(); }
  std::vector<HostTensor> tensors_;
  int32_t rows_ = 0;
};

constexpr int32_t kSlots = 5;

struct Result {
  std::vector<float> out, state;
};

// Inputs of row i depend on i + `shift` only, so that a slice can be run alone.
void fill_rows(TensorView t, uint64_t seed, int32_t shift, float low, float high) {
  for (int32_t r = 0; r < t.rows(); ++r) {
    for (int32_t c = 0; c < t.cols(); ++c) {
      const float u =
          random_unit(seed + static_cast<uint64_t>(r + shift), static_cast<uint64_t>(c));
      t.row<float>(r)[c] = low + (high - low) * u;
    }
  }
}

Result run_delta(OpRunner& run, const GdnShape& shape, const std::vector<Slice>& slices,
                 int32_t shift = 0, float lowest_decay = -2.5f) {
  Slices s(slices);
  Window qkv(s.rows(), shape.conv_channels()), out(s.rows(), shape.value_width());
  HostTensor g(DType::kF32, {s.rows(), shape.value_heads}),
      beta(DType::kF32, {s.rows(), shape.value_heads});
  HostTensor state(DType::kF32, {kSlots, shape.value_width(), shape.key_dim});
  fill_rows(qkv.view(), 1'000, shift, -1, 1);
  fill_rows(g.view(), 2'000'000, shift, lowest_decay, 0);
  fill_rows(beta.view(), 3'000'000, shift, 0, 1);
  state.fill(7, -0.3f, 0.3f);
  out.fill(8);
  run(ops::GatedDelta{.qkv = qkv.view(),
                      .g = g.view(),
                      .beta = beta.view(),
                      .positions = s.positions(),
                      .state = {.base = state.view(), .conv_tail = {}},
                      .seqs = s.seqs(),
                      .shape = shape,
                      .out = out.view()});
  return {out.floats(), state.floats()};
}

const std::vector<Slice> kStep = {{1, 3, 77, false},
                                  {70, 0, 0, true},
                                  {0, 4, 0, false},
                                  {130, 1, 40, false},
                                  {64, 2, 128, false}};

TEST(GdnSlicesTest, DeltaMatchesReferenceForManySlices) {
  for (const GdnShape& shape : {GdnShape{2, 2, 128, 128}, GdnShape{1, 3, 64, 64},
                                GdnShape{2, 4, 16, 32}, GdnShape{1, 2, 48, 16}}) {
    if (!testing::is_built(shape)) continue;
    SCOPED_TRACE(::testing::Message() << shape.value_heads << ' ' << shape.key_dim);
    OpRunner ref(Backend::kRef), one(Backend::kCpu, 1), three(Backend::kCpu, 3);
    const Result expected = run_delta(ref, shape, kStep), actual = run_delta(one, shape, kStep);
    EXPECT_LE(testing::max_difference(actual.out, expected.out), 1e-4);
    EXPECT_LE(testing::max_difference(actual.state, expected.state), 1e-4);
    const Result threaded = run_delta(three, shape, kStep);
    testing::expect_same_bits(threaded.out, actual.out);
    testing::expect_same_bits(threaded.state, actual.state);
  }
}

TEST(GdnSlicesTest, DeltaOfASliceDoesNotDependOnItsNeighbours) {
  const GdnShape shape{1, 3, 64, 64};
  OpRunner run(Backend::kCpu);
  const Result all = run_delta(run, shape, kStep);
  const auto stride = int64_t{Window::kLeft} + shape.value_width() + Window::kRight;
  const int64_t slot_size = int64_t{shape.value_width()} * shape.key_dim;
  int32_t first = 0;
  for (const Slice& slice : kStep) {
    if (slice.rows > 0) {
      const Result alone = run_delta(run, shape, {slice}, first);
      for (int64_t r = 0; r < slice.rows; ++r) {
        const auto a = alone.out.begin() + r * stride + Window::kLeft;
        const auto b = all.out.begin() + (r + first) * stride + Window::kLeft;
        testing::expect_same_bits({a, a + shape.value_width()}, {b, b + shape.value_width()});
      }
      const auto a = alone.state.begin() + slice.slot * slot_size;
      const auto b = all.state.begin() + slice.slot * slot_size;
      testing::expect_same_bits({a, a + slot_size}, {b, b + slot_size});
    }
    first += slice.rows;
  }
}

// Steps of one row (decode, or a verified draft) leave the same bits as one slice that is too short
// for a chunk.
TEST(GdnSlicesTest, RecurrenceIsTheSameRowByRow) {
  const GdnShape shape{1, 2, 64, 64};
  OpRunner run(Backend::kCpu);
  const Result whole = run_delta(run, shape, {{8, 0, 61, false}});
  HostTensor state(DType::kF32, {kSlots, shape.value_width(), shape.key_dim});
  state.fill(7, -0.3f, 0.3f);
  for (int32_t t = 0; t < 8; ++t) {
    Slices s({{1, 0, 61 + t, false}});
    HostTensor qkv(DType::kF32, {1, shape.conv_channels()}), g(DType::kF32, {1, 2});
    HostTensor beta(DType::kF32, {1, 2}), out(DType::kF32, {1, shape.value_width()});
    fill_rows(qkv.view(), 1'000, t, -1, 1);
    fill_rows(g.view(), 2'000'000, t, -2.5f, 0);
    fill_rows(beta.view(), 3'000'000, t, 0, 1);
    run(ops::GatedDelta{.qkv = qkv.view(),
                        .g = g.view(),
                        .beta = beta.view(),
                        .positions = s.positions(),
                        .state = {.base = state.view(), .conv_tail = {}},
                        .seqs = s.seqs(),
                        .shape = shape,
                        .out = out.view()});
  }
  testing::expect_same_bits(state.floats(), whole.state);
}

// One token that forgets everything must not blur the decays after it.
TEST(GdnSlicesTest, DeltaStaysExactWhenATokenForgetsEverything) {
  const GdnShape shape{1, 1, 64, 64};
  const auto run_with = [&](OpRunner& run) {
    Slices s({{64, 0, 0, false}});
    HostTensor qkv(DType::kF32, {64, shape.conv_channels()}), g(DType::kF32, {64, 1});
    HostTensor beta(DType::kF32, {64, 1}), out(DType::kF32, {64, 64});
    HostTensor state(DType::kF32, {1, 64, 64});
    fill_rows(qkv.view(), 5'000, 0, -1, 1);
    fill_rows(beta.view(), 6'000, 0, 0.5f, 1);
    g.fill(3, -0.02f, 0);
    g.set(3, -50'000);
    g.set(40, -1'000);
    state.fill(4);
    run(ops::GatedDelta{.qkv = qkv.view(),
                        .g = g.view(),
                        .beta = beta.view(),
                        .positions = s.positions(),
                        .state = {.base = state.view(), .conv_tail = {}},
                        .seqs = s.seqs(),
                        .shape = shape,
                        .out = out.view()});
    std::vector<float> all = out.floats(), end = state.floats();
    all.insert(all.end(), end.begin(), end.end());
    return all;
  };
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  EXPECT_LE(testing::max_difference(run_with(cpu), run_with(ref)), 2e-5);
}

// Keys of head κ are the unit vector κ, values are ones: what a value head stores names its key
// head.
TEST(GdnSlicesTest, ConsecutiveValueHeadsShareAKeyHead) {
  const GdnShape shape{2, 6, 32, 32};
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    Slices s({{1, 0, 0, true}});
    HostTensor qkv(DType::kF32, {1, shape.conv_channels()}), g(DType::kF32, {1, 6});
    HostTensor beta(DType::kF32, {1, 6}), out(DType::kF32, {1, shape.value_width()});
    HostTensor state(DType::kF32, {1, shape.value_width(), 32});
    for (int32_t h = 0; h < 2; ++h) qkv.set(shape.key_width() + h * 32 + h, 1);
    for (int32_t i = 0; i < shape.value_width(); ++i) qkv.set(2 * shape.key_width() + i, 1);
    for (int32_t h = 0; h < 6; ++h) beta.set(h, 1);
    OpRunner run(backend);
    run(ops::GatedDelta{.qkv = qkv.view(),
                        .g = g.view(),
                        .beta = beta.view(),
                        .positions = s.positions(),
                        .state = {.base = state.view(), .conv_tail = {}},
                        .seqs = s.seqs(),
                        .shape = shape,
                        .out = out.view()});
    for (int32_t h = 0; h < 6; ++h) {
      EXPECT_NEAR(state.get(int64_t{h} * 32 * 32 + h / 3), 1, 1e-5) << "value head " << h;
      EXPECT_NEAR(state.get(int64_t{h} * 32 * 32 + 1 - h / 3), 0, 1e-5) << "value head " << h;
    }
  }
}

TEST(GdnSlicesTest, FreshSlicesIgnoreWhateverTheSlotHolds) {
  const GdnShape shape{1, 1, 32, 32};
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    for (const int32_t rows : {1, 64}) {
      Slices s({{rows, 0, 0, true}});
      HostTensor x(DType::kF32, {rows, 96}), mixed(DType::kF32, {rows, 96});
      HostTensor weight(DType::kF32, {96, 4}), g(DType::kF32, {rows, 1}),
          out(DType::kF32, {rows, 32});
      HostTensor base(DType::kF32, {1, 32, 32}), tail(DType::kF32, {1, 3, 96});
      base.fill_values(std::vector<float>(32 * 32, NAN));
      tail.fill_values(std::vector<float>(3 * 96, NAN));
      const StateView state{.base = base.view(), .conv_tail = tail.view()};
      OpRunner run(backend);
      run(ops::CausalConv{.x = x.fill(1).view(),
                          .weight = weight.fill(2).view(),
                          .state = state,
                          .seqs = s.seqs(),
                          .out = mixed.view()});
      run(ops::GatedDelta{.qkv = mixed.view(),
                          .g = g.view(),
                          .beta = g.view(),
                          .positions = s.positions(),
                          .state = state,
                          .seqs = s.seqs(),
                          .shape = shape,
                          .out = out.view()});
      for (const HostTensor* t : {&mixed, &out, &base, &tail}) {
        for (const float v : t->floats()) ASSERT_TRUE(std::isfinite(v));
      }
    }
  }
}

// Slices of 1, 2 and 3 rows are shorter than the tail of a width-4 convolution; 1030 channels are
// split over threads.
TEST(GdnSlicesTest, ConvMatchesReferenceForManySlices) {
  const std::vector<Slice> step = {
      {1, 2, 9, false}, {2, 0, 0, true}, {3, 4, 5, false}, {0, 3, 0, false}, {9, 1, 11, false}};
  for (const int32_t width : {2, 3, 4}) {
    for (const int32_t channels : {5, 64, 1030}) {
      SCOPED_TRACE(::testing::Message() << width << ' ' << channels);
      const auto run_conv = [&](OpRunner& run) {
        Slices s(step);
        Window x(s.rows(), channels), out(s.rows(), channels);
        HostTensor weight(DType::kF32, {channels, width});
        HostTensor tail(DType::kF32, {kSlots, width - 1, channels});
        run(ops::CausalConv{.x = x.fill(1, -2, 2).view(),
                            .weight = weight.fill(2).view(),
                            .state = {.base = {}, .conv_tail = tail.fill(3).view()},
                            .seqs = s.seqs(),
                            .out = out.fill(4).view()});
        std::vector<float> all = out.floats(), kept = tail.floats();
        all.insert(all.end(), kept.begin(), kept.end());
        return all;
      };
      OpRunner ref(Backend::kRef), one(Backend::kCpu, 1), three(Backend::kCpu, 3);
      const std::vector<float> actual = run_conv(one);
      EXPECT_LE(testing::max_difference(actual, run_conv(ref)), 2e-6);
      testing::expect_same_bits(run_conv(three), actual);
    }
  }
}

TEST(GdnSlicesTest, GatesMatchReferenceInStridedViews) {
  const auto program = [](OpRunner& run, int32_t rows) {
    Window ba(rows, 12);
    HostTensor a_log(DType::kF32, {6}), dt_bias(DType::kF32, {6});
    HostTensor g(DType::kF32, {rows, 6}), beta(DType::kF32, {rows, 6});
    ba.fill(1, -30, 30);
    run(ops::GdnGates{.a = ba.view().slice_cols(6, 6),
                      .b = ba.view().slice_cols(0, 6),
                      .a_log = a_log.fill(2, -3, 1).view(),
                      .dt_bias = dt_bias.fill(3, -2, 2).view(),
                      .g = g.view(),
                      .beta = beta.view()});
    std::vector<float> all;
    for (int64_t i = 0; i < g.size(); ++i) {
      all.push_back(g.get(i));
      all.push_back(beta.get(i));
    }
    return all;
  };
  testing::check_rows(program, 9, 2e-5);
}

}  // namespace
}  // namespace exode
