// Experts at the row counts where kernels change, with and without a shared expert.
#include "ops/compare.h"
#include "ops/random_weight.h"

namespace exode::testing {
namespace {

constexpr int32_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 33, 64, 100};
constexpr int32_t kRowsMax = 100, kExperts = 8, kTopK = 3, kHidden = 128, kInner = 128;

constexpr WeightCase kInt4{WeightLayout::kInt4Group, DType::kU8, 128};
constexpr WeightCase kInt4Zeros{WeightLayout::kInt4Group, DType::kU8, 128, true};
constexpr WeightCase kInt4Group32{WeightLayout::kInt4Group, DType::kU8, 32};
constexpr WeightCase kFp8{WeightLayout::kFp8Block, DType::kFp8E4M3, 128};
constexpr WeightCase kBf16{WeightLayout::kDense, DType::kBF16};

struct Case {
  const char* name;
  WeightCase experts;
  const WeightCase* shared;  // null: none
};

constexpr Case kCases[] = {{"int4", kInt4, nullptr},
                           {"int4_shared_int4", kInt4, &kInt4},
                           {"int4_shared_bf16", kInt4, &kBf16},
                           {"int4z", kInt4Zeros, &kInt4Zeros},
                           {"int4g32", kInt4Group32, &kBf16},
                           {"fp8", kFp8, &kFp8},
                           {"bf16", kBf16, &kBf16}};

class Experts {
 public:
  explicit Experts(const Case& c)
      : gate_up_(c.experts, kExperts * 2 * kInner, kHidden, 1),
        down_(c.experts, kExperts * kHidden, kInner, 2),
        shared_gate_up_(c.shared == nullptr ? kBf16 : *c.shared, 2 * kInner, kHidden, 3),
        shared_down_(c.shared == nullptr ? kBf16 : *c.shared, kHidden, kInner, 4),
        has_shared_(c.shared != nullptr) {
    x_.fill(5);
    gate_logit_.fill(6, -3, 3);
    weights_.fill(7, 0, 1);
    for (int32_t r = 0; r < kRowsMax; ++r) choose(r);
  }
  // Rows [first, first + rows).
  std::vector<float> run(OpRunner& op, int32_t first, int32_t rows) {
    HostTensor out(DType::kF32, {rows, kHidden});
    for (int64_t i = 0; i < out.size(); ++i) out.set(i, NAN);
    ops::MoeExperts moe{.x = x_.cview().slice_rows(first, rows),
                        .ids = ids_.cview().slice_rows(first, rows),
                        .weights = weights_.cview().slice_rows(first, rows),
                        .gate_up = gate_up_.view(),
                        .down = down_.view(),
                        .experts = kExperts,
                        .out = out.view()};
    if (has_shared_) {
      moe.shared = {.gate_up = shared_gate_up_.view(),
                    .down = shared_down_.view(),
                    .gate_logit = gate_logit_.cview().slice_rows(first, rows)};
    }
    op(moe);
    return out.floats();
  }

 private:
  // Expert 2 is the first choice of two rows in three, expert 5 nobody's.
  void choose(int32_t row) {
    std::vector<int32_t> ids;
    if (row % 3 != 0) ids.push_back(2);
    for (uint64_t draw = 0; ids.size() < kTopK; ++draw) {
      const auto id =
          static_cast<int32_t>(random_bits(static_cast<uint64_t>(row), draw) % kExperts);
      if (id != 5 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    for (int32_t j = 0; j < kTopK; ++j) {
      ids_.set(int64_t{row} * kTopK + j, static_cast<float>(ids[static_cast<size_t>(j)]));
    }
  }
  RandomWeight gate_up_, down_, shared_gate_up_, shared_down_;
  bool has_shared_;
  HostTensor x_{DType::kF32, {kRowsMax, kHidden}}, gate_logit_{DType::kF32, {kRowsMax, 1}};
  HostTensor weights_{DType::kF32, {kRowsMax, kTopK}}, ids_{DType::kI32, {kRowsMax, kTopK}};
};

class MoeRowsTest : public ::testing::TestWithParam<Case> {};

TEST_P(MoeRowsTest, EqualTheReference) {
  OpRunner ref(Backend::kRef), tested(Backend::kCpu);
  Experts experts(GetParam());
  const std::vector<float> expected = experts.run(ref, 0, kRowsMax);
  for (const int32_t rows : kRowCounts) {
    SCOPED_TRACE(rows);
    expect_products_close(experts.run(tested, 0, rows),
                          {expected.begin(), expected.begin() + int64_t{rows} * kHidden}, kHidden);
  }
}

TEST_P(MoeRowsTest, UpToEightRowsHaveTheBitsOfEachAlone) {
  OpRunner tested(Backend::kCpu);
  Experts experts(GetParam());
  std::vector<float> alone;
  for (int32_t r = 0; r < 8; ++r) {
    const std::vector<float> row = experts.run(tested, r, 1);
    alone.insert(alone.end(), row.begin(), row.end());
  }
  for (int32_t rows = 2; rows <= 8; ++rows) {
    SCOPED_TRACE(rows);
    expect_same_bits(experts.run(tested, 0, rows),
                     {alone.begin(), alone.begin() + int64_t{rows} * kHidden});
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, MoeRowsTest, ::testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace exode::testing
