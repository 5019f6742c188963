// Attention in steps as the engine makes them: several sequences whose rows are known to belong
// together, some bringing a draft, some a part of a prompt, with an output gate.
#include "ops/kv_case.h"

namespace exode::testing {
namespace {

struct Part {  // of a step: the last `rows` tokens of a context of `length`
  int32_t length, rows;
};

// A step over contexts that are in the cache already.
class Step {
 public:
  Step(const Geometry& g, const std::vector<Part>& parts)
      : parts_(parts), cache_(g, lengths_of(parts)) {
    OpRunner reference(Backend::kRef);
    for (size_t s = 0; s < parts.size(); ++s) {
      const auto sequence = static_cast<int32_t>(s);
      append(reference, cache_, Rows().add(sequence, 0, parts[s].length));
    }
  }
  std::vector<float> run(OpRunner& op, bool gated = true) {
    std::vector<int32_t> counts;
    Rows rows;
    for (size_t s = 0; s < parts_.size(); ++s) {
      rows.add(static_cast<int32_t>(s), parts_[s].length - parts_[s].rows, parts_[s].rows);
      counts.push_back(parts_[s].rows);
    }
    return attend(op, rows, counts, gated);
  }
  // One row without its neighbours; `row` counts from the first of its part.
  std::vector<float> run_alone(OpRunner& op, size_t sequence, int32_t row) {
    std::vector<int32_t> counts(parts_.size(), 0);
    counts[sequence] = 1;
    const Part& part = parts_[sequence];
    return attend(op, Rows().add(static_cast<int32_t>(sequence), part.length - part.rows + row, 1),
                  counts, true);
  }
  // Rows [first, first + rows) of the only sequence.
  std::vector<float> run_piece(OpRunner& op, int32_t first, int32_t rows) {
    return attend(op, Rows().add(0, first, rows), {rows}, true);
  }
  const std::vector<Part>& parts() const { return parts_; }
  const Geometry& geometry() const { return cache_.geometry(); }

 private:
  static std::vector<int32_t> lengths_of(const std::vector<Part>& parts) {
    std::vector<int32_t> lengths;
    for (const Part& part : parts) lengths.push_back(part.length);
    return lengths;
  }
  std::vector<float> attend(OpRunner& op, const Rows& rows, const std::vector<int32_t>& counts,
                            bool gated) {
    const Geometry& g = geometry();
    std::vector<int32_t> firsts;
    int32_t first = 0;
    for (const int32_t count : counts) {
      firsts.push_back(first);
      first += count;
    }
    HostTensor q = vectors(kQuery, rows, g.q_width()), gate = vectors(kGate, rows, g.q_width());
    HostTensor out(DType::kF32, {rows.count(), g.q_width()});
    HostTensor positions = indices(rows.positions), seqs = indices(rows.sequences);
    HostTensor row_first = indices(firsts), row_count = indices(counts);
    for (int64_t i = 0; i < out.size(); ++i) out.set(i, NAN);
    op(kv::Attend{.cache = cache_.view(),
                  .q = q.view(),
                  .out = out.view(),
                  .positions = positions.view(),
                  .seq_of_row = seqs.view(),
                  .gate = gated ? ConstTensorView(gate.view()) : ConstTensorView{},
                  .seqs = {.row_first = row_first.view(),
                           .row_count = row_count.view(),
                           .state_slot = {},
                           .fresh = {}},
                  .scale = scale_of(g),
                  .soft_cap = g.soft_cap,
                  .window = g.window});
    return out.floats();
  }

  std::vector<Part> parts_;
  Cache cache_;
};

std::vector<Geometry> geometries() {
  return {{"bf16", 2, 6, 256},        {"bf16", 1, 4, 128},       {"bf16", 2, 8, 64},
          {"f16", 2, 1, 256},         {"f16", 1, 16, 128},       {"f16", 2, 6, 64},
          {"f32", 1, 6, 256},         {"f32", 2, 4, 128},        {"f32", 1, 3, 64},
          {"bf16", 2, 4, 64, 3, 100}, {"f16", 1, 6, 256, 0, 100}};
}

std::string name_of(const Geometry& g) {
  return std::string(g.format) + "_kv" + std::to_string(g.heads) + "_group" +
         std::to_string(g.group) + "_dim" + std::to_string(g.dim) +
         (g.window > 0 ? "_window" : "") + (g.soft_cap > 0 ? "_cap" : "");
}

void expect_close(const std::vector<float>& actual, const std::vector<float>& expected,
                  const Geometry& g) {
  EXPECT_LE(max_difference(actual, expected), bound(g, 5e-6, expected));
}

class AttendStepsTest : public ::testing::TestWithParam<Geometry> {};

TEST_P(AttendStepsTest, DraftsEqualTheReference) {
  OpRunner ref(Backend::kRef), tested(Backend::kCpu);
  Step step(GetParam(), {{1, 1}, {63, 2}, {64, 3}, {65, 4}, {300, 8}, {130, 5}});
  expect_close(step.run(tested), step.run(ref), GetParam());
  expect_close(step.run(tested, false), step.run(ref, false), GetParam());
}

TEST_P(AttendStepsTest, PromptsAmongDraftsEqualTheReference) {
  OpRunner ref(Backend::kRef), tested(Backend::kCpu);
  Step step(GetParam(), {{1, 1}, {70, 64}, {130, 65}, {200, 3}, {33, 33}, {150, 9}});
  expect_close(step.run(tested), step.run(ref), GetParam());
}

TEST_P(AttendStepsTest, RowsOfADraftHaveTheBitsOfEachAlone) {
  OpRunner tested(Backend::kCpu);
  Step step(GetParam(), {{1, 1}, {63, 2}, {300, 8}, {65, 4}});
  const std::vector<float> all = step.run(tested);
  const int64_t width = GetParam().q_width();
  int64_t at = 0;
  for (size_t s = 0; s < step.parts().size(); ++s) {
    for (int32_t r = 0; r < step.parts()[s].rows; ++r, at += width) {
      SCOPED_TRACE(::testing::Message() << "sequence " << s << " row " << r);
      expect_same_bits(step.run_alone(tested, s, r), {all.begin() + at, all.begin() + at + width});
    }
  }
}

TEST_P(AttendStepsTest, HowAPromptIsCutChangesLittle) {
  OpRunner tested(Backend::kCpu);
  Step step(GetParam(), {{200, 200}});
  const std::vector<float> whole = step.run(tested);
  for (const int32_t chunk : {1, 7, 64, 65}) {
    SCOPED_TRACE(chunk);
    std::vector<float> pieces;
    for (int32_t first = 0; first < 200; first += chunk) {
      const std::vector<float> piece = step.run_piece(tested, first, std::min(chunk, 200 - first));
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    expect_close(pieces, whole, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Geometries, AttendStepsTest, ::testing::ValuesIn(geometries()),
                         [](const auto& p) { return name_of(p.param); });

// Contexts that one block cannot read alone are split and joined.
TEST(AttendSplitsTest, LongContextsEqualTheReference) {
  OpRunner ref(Backend::kRef), tested(Backend::kCpu);
  for (const Geometry& g : {Geometry{"bf16", 1, 2, 128}, Geometry{"f16", 1, 3, 64, 0, 3000}}) {
    SCOPED_TRACE(g.format);
    Step step(g, {{20'001, 5}, {4100, 2}, {1, 1}});
    expect_close(step.run(tested), step.run(ref), g);
  }
}

// The fused op against the two it is made of.
TEST(RotateAppendTest, EqualsTheReference) {
  OpRunner ref(Backend::kRef), tested(Backend::kCpu);
  for (const Geometry& g :
       {Geometry{"f32", 2, 3, 64}, Geometry{"bf16", 1, 6, 256}, Geometry{"f16", 2, 2, 128}}) {
    SCOPED_TRACE(g.format);
    const Rows rows = Rows().add(0, 0, 3).add(1, 60, 9).add(-1, 5, 1).add(0, 90, 1);
    HostTensor q_weight(DType::kF32, {g.dim}), k_weight(DType::kF32, {g.dim});
    q_weight.fill(1);
    k_weight.fill(2);
    HostTensor inv_freq(DType::kF32, {g.dim / 4});  // half of the head is rotated
    for (int32_t j = 0; j < g.dim / 4; ++j) {
      inv_freq.set(j, std::pow(1e7f, -4.0f * static_cast<float>(j) / static_cast<float>(g.dim)));
    }
    HostTensor positions = indices(rows.positions), seqs = indices(rows.sequences);
    const auto run = [&](OpRunner& op, Cache& cache) {
      HostTensor q = vectors(kQuery, rows, g.q_width()), k = vectors(kKey, rows, g.kv_width());
      HostTensor v = vectors(kValue, rows, g.kv_width());
      op(kv::RotateAppend{.rotate = {.q = q.view(),
                                     .k = k.view(),
                                     .q_weight = q_weight.view(),
                                     .k_weight = k_weight.view(),
                                     .inv_freq = inv_freq.view(),
                                     .positions = positions.view(),
                                     .head_dim = g.dim,
                                     .weight_bias = 1},
                          .cache = cache.view(),
                          .v = v.view(),
                          .seq_of_row = seqs.view()});
      return q.floats();
    };
    Cache expected(g, {100, 100}), actual(g, {100, 100});
    const std::vector<float> q = run(tested, actual), expected_q = run(ref, expected);
    const auto padding = static_cast<int64_t>(12 * g.q_width());  // unspecified: it has no sequence
    EXPECT_LE(max_difference({q.begin(), q.begin() + padding},
                             {expected_q.begin(), expected_q.begin() + padding}),
              2e-5);
    // What was never stored is NaN in both; stored values may round to the neighbour.
    const double ulp = stored_dtype(g.format) == DType::kF32    ? 2e-5
                       : stored_dtype(g.format) == DType::kBF16 ? 0x1p-6
                                                                : 0x1p-9;
    const std::vector<float> a = actual.floats(), e = expected.floats();
    ASSERT_EQ(a.size(), e.size());
    int64_t stored = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(std::isnan(a[i]), std::isnan(e[i])) << i;
      if (std::isnan(e[i])) continue;
      ++stored;
      ASSERT_NEAR(a[i], e[i], ulp * std::max(1.0f, std::abs(e[i]))) << i;
    }
    EXPECT_EQ(stored, int64_t{13} * 2 * g.kv_width());
  }
}

}  // namespace
}  // namespace exode::testing
