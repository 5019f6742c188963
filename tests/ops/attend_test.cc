// Attention over the paged cache: against textbook softmax, at any cut of a prompt into steps, over
// memory that was never written, over long contexts.
#include "ops/kv_case.h"

namespace exode::testing {
namespace {

// Textbook attention from the vectors themselves: no cache, no format, no op.
std::vector<float> expected_row(const Geometry& g, int32_t sequence, int32_t position) {
  std::vector<float> out;
  const int32_t first = g.window > 0 ? std::max(0, position - g.window + 1) : 0;
  for (int32_t h = 0; h < g.heads * g.group; ++h) {
    const int64_t kv = int64_t{h / g.group} * g.dim;
    std::vector<double> sum(static_cast<size_t>(g.dim));
    double total = 0;
    for (int32_t t = first; t <= position; ++t) {
      double score = 0;
      for (int32_t i = 0; i < g.dim; ++i) {
        score += static_cast<double>(element(kQuery, sequence, position, int64_t{h} * g.dim + i)) *
                 element(kKey, sequence, t, kv + i);
      }
      score *= scale_of(g);
      if (g.soft_cap > 0) score = g.soft_cap * std::tanh(score / g.soft_cap);
      total += std::exp(score);
      for (int32_t i = 0; i < g.dim; ++i) {
        sum[static_cast<size_t>(i)] += std::exp(score) * element(kValue, sequence, t, kv + i);
      }
    }
    for (const double x : sum) out.push_back(static_cast<float>(x / total));
  }
  return out;
}

TEST(AttendTest, IsTextbookSoftmaxOnBothBackends) {
  for (const Geometry& g : {Geometry{"f32", 2, 3, 64, 0, 0}, Geometry{"f32", 1, 6, 128, 0, 0},
                            Geometry{"f32", 3, 1, 64, 2, 0}, Geometry{"f32", 1, 8, 256, 0, 70},
                            Geometry{"f32", 2, 2, 16, 0, 1}, Geometry{"f32", 1, 5, 48, 0, 64}}) {
    if (!g.is_built()) continue;
    SCOPED_TRACE(::testing::Message() << g.group << ' ' << g.dim << ' ' << g.window);
    for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
      OpRunner run(backend);
      Cache cache(g, {150, 90});
      append(run, cache, Rows().add(0, 0, 150).add(1, 0, 90));
      const Rows rows = Rows().add(0, 0, 2).add(1, 62, 5).add(0, 127, 23);
      std::vector<float> expected;
      for (size_t r = 0; r < rows.positions.size(); ++r) {
        const std::vector<float> row = expected_row(g, rows.sequences[r], rows.positions[r]);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      EXPECT_LE(max_difference(attend(run, cache, rows), expected), 5e-6);
    }
  }
}

TEST(AttendTest, MatchesReferenceForStoredFormats) {
  for (const char* format : {"f32", "bf16", "f16"}) {
    for (const int32_t group : {1, 2, 3, 4, 6, 7, 16}) {
      SCOPED_TRACE(::testing::Message() << format << ' ' << group);
      const Geometry g{format, 2, group, 64, 0, group == 4 ? 33 : 0};
      OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
      Cache cache(g, {140});
      append(cpu, cache, Rows().add(0, 0, 140));
      const Rows rows = Rows().add(0, 0, 3).add(0, 60, 80);
      const std::vector<float> expected = attend(ref, cache, rows);
      EXPECT_LE(max_difference(attend(cpu, cache, rows), expected), bound(g, 5e-6, expected));
    }
  }
}

// However rows are batched, cut into steps and spread over threads, a row gets the same bits.
TEST(AttendTest, BitsOfARowDependOnNothingElse) {
  for (const Geometry& g : {Geometry{"bf16", 1, 6, 128, 0, 0}, Geometry{"f32", 2, 1, 64, 0, 0},
                            Geometry{"f16", 2, 3, 64, 0, 50}, Geometry{"bf16", 1, 4, 64, 5, 0}}) {
    SCOPED_TRACE(::testing::Message() << g.format << ' ' << g.group << ' ' << g.window);
    const auto width = static_cast<int64_t>(g.q_width());
    OpRunner one(Backend::kCpu, 1), two(Backend::kCpu, 2), five(Backend::kCpu, 5);
    Cache cache(g, {200, 77});
    append(one, cache, Rows().add(0, 0, 200).add(1, 0, 77));
    const std::vector<float> whole = attend(one, cache, Rows().add(0, 0, 200));
    expect_same_bits(attend(two, cache, Rows().add(0, 0, 200)), whole);
    expect_same_bits(attend(five, cache, Rows().add(0, 0, 200)), whole);
    for (const int32_t rows : {1, 2, 3, 7, 30}) {
      for (int32_t first = 0; first + rows <= 200; first += 37) {
        const Rows step = Rows().add(1, 40, 3).add(-1, 0, 1).add(0, first, rows).add(1, 76, 1);
        const std::vector<float> all = attend(two, cache, step);
        const auto begin = all.begin() + 4 * width;
        expect_same_bits({begin, begin + rows * width},
                         {whole.begin() + first * width, whole.begin() + (first + rows) * width});
      }
    }
  }
}

TEST(AttendTest, LeavesPaddingRowsAlone) {
  const Geometry g{"bf16", 1, 2, 64, 0, 0};
  HostTensor untouched(DType::kF32, {3, g.q_width()});
  untouched.fill(9);
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    OpRunner run(backend);
    Cache cache(g, {64});
    append(run, cache, Rows().add(-1, 5, 2));
    expect_same_bits(attend(run, cache, Rows().add(-1, 0, 3)), untouched.floats());
    append(run, cache, Rows().add(0, 0, 1));  // the padding rows have left no token behind
    const std::vector<float> row = attend(run, cache, Rows().add(0, 0, 1));
    EXPECT_TRUE(std::isfinite(row[0]));
  }
}

TEST(AttendTest, BlocksMayMoveAndTokensMayBeOverwritten) {
  for (const char* format : {"f32", "bf16", "f16"}) {
    OpRunner run(Backend::kCpu);
    Cache cache(Geometry{format, 2, 2, 64, 0, 0}, {130});
    const Rows prompt = Rows().add(0, 0, 130), last = Rows().add(0, 129, 1);
    append(run, cache, prompt);
    const std::vector<float> before = attend(run, cache, last);
    cache.relocate(1);
    expect_same_bits(attend(run, cache, last), before);
    append(run, cache, Rows().add(0, 100, 30), 10);  // rejected draft
    EXPECT_GT(max_difference(attend(run, cache, last), before), 1e-3);
    append(run, cache, Rows().add(0, 100, 30));
    expect_same_bits(attend(run, cache, last), before);
  }
}

TEST(AttendTest, LongContext) {
  constexpr int32_t kLength = 32 * 1024;
  const Geometry g{"bf16", 1, 2, 64, 0, 0};
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  Cache cache(g, {kLength});
  append(cpu, cache, Rows().add(0, 0, kLength));
  const Rows rows = Rows().add(0, kLength - 3, 3);
  const std::vector<float> expected = attend(ref, cache, rows);
  EXPECT_LE(max_difference(attend(cpu, cache, rows), expected), bound(g, 1e-6, expected));
}

// Subnormal halves and ties in the rounding: what is stored is what half.h defines.
TEST(AttendTest, StoredValuesAreRoundedToNearestEven) {
  const std::vector<float> values = {1 + 0x1p-8f,  1 + 3 * 0x1p-8f,
                                     1 + 0x1p-11f, 1 + 3 * 0x1p-11f,
                                     3 * 0x1p-25f, -5 * 0x1p-24f,
                                     65504,        -0.333333f,
                                     0x1p-14f,     0,
                                     -7,           1e-3f,
                                     2049,         4097.5f,
                                     0x1p-20f,     -1};
  for (const auto& [name, dtype] : {std::pair{"bf16", DType::kBF16}, {"f16", DType::kF16}}) {
    HostTensor rounded(dtype, {32});
    rounded.fill_values(values);
    OpRunner run(Backend::kCpu);
    Cache cache(Geometry{name, 1, 1, 32, 0, 0}, {1});
    HostTensor k(DType::kF32, {1, 32}), v(DType::kF32, {1, 32});
    v.fill_values(values);
    HostTensor zero = indices({0});
    run(kv::KvAppend{.cache = cache.view(),
                     .k = k.view(),
                     .v = v.view(),
                     .positions = zero.view(),
                     .seq_of_row = zero.view()});
    EXPECT_EQ(attend(run, cache, Rows().add(0, 0, 1)), rounded.floats());  // one token: its value
  }
}

TEST(AttendTest, PlanningTouchesNoMemory) {
  const Geometry g{"bf16", 2, 4, 256, 0, 0};
  auto device = open_device({.name = "cpu", .threads = 2}).value();
  const OpTable table = cpu_ops(device->caps());
  Arena arena = Arena::counting();
  Exec x(Exec::Mode::kPlan, table, device->stream(), arena);
  const auto scope = x.scope();
  const TensorView q = x.temp(DType::kF32, 512, g.q_width()), rows = x.temp(DType::kI32, 512, 1);
  const TensorView k = x.temp(DType::kF32, 512, g.kv_width()), blocks = x.temp(DType::kI32, 2, 99);
  const TensorView out = x.temp(DType::kF32, 512, g.q_width());
  const KvView cache{.base = k.data,
                     .block_stride = 1,
                     .heads = g.heads,
                     .head_dim = g.dim,
                     .block_table = blocks,
                     .format = find_kv_format("bf16")};
  x(kv::KvAppend{.cache = cache, .k = k, .v = k, .positions = rows, .seq_of_row = rows});
  x(kv::Attend{
      .cache = cache, .q = q, .out = out, .positions = rows, .seq_of_row = rows, .scale = 1});
  EXPECT_DEATH(
      x(kv::Attend{
          .cache = cache, .q = q, .out = q, .positions = rows, .seq_of_row = rows, .scale = 1}),
      "in place");
  EXPECT_DEATH(x(kv::Attend{.cache = cache,
                            .q = q.slice_cols(0, 3 * 256),
                            .out = out.slice_cols(0, 3 * 256),
                            .positions = rows,
                            .seq_of_row = rows,
                            .scale = 1}),
               "multiple of kv heads");
}

TEST(KvFormatTest, BlockBytesCountKeysAndValuesOfAllHeads) {
  const KvGeometry g{.layers = 5, .heads = 3, .head_dim = 32};
  EXPECT_EQ(find_kv_format("f32")->block_bytes(g), size_t{2} * 3 * 64 * 32 * 4);
  EXPECT_EQ(find_kv_format("bf16")->block_bytes(g), size_t{2} * 3 * 64 * 32 * 2);
  EXPECT_EQ(find_kv_format("f16")->block_bytes(g), size_t{2} * 3 * 64 * 32 * 2);
}

}  // namespace
}  // namespace exode::testing
