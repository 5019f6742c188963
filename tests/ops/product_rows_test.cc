// Matrix products at the row counts where kernels change, plain and with SwiGLU, on every layout.
#include "ops/compare.h"
#include "ops/random_weight.h"

namespace exode::testing {
namespace {

constexpr int32_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 33, 64, 100};
constexpr int32_t kRowsMax = 100;

struct Product {
  int32_t outputs, inputs;
  bool swiglu;
};

// 96 outputs are three strips; 40 and 416 leave tiles half full.
constexpr Product kProducts[] = {
    {96, 640, false}, {96, 640, true}, {40, 416, false}, {80, 256, true}};

int32_t width_of(const Product& p) { return p.swiglu ? p.outputs / 2 : p.outputs; }

// Rows [first, first + rows) of one x that depends on the number of inputs only.
std::vector<float> multiply(OpRunner& run, const Product& p, const WeightView& w, int32_t first,
                            int32_t rows) {
  HostTensor all(DType::kF32, {kRowsMax, p.inputs}), out(DType::kF32, {rows, width_of(p)});
  all.fill(5);
  HostTensor x(DType::kF32, {rows, p.inputs});
  std::memcpy(x.view().data, all.view().row<float>(first),
              static_cast<size_t>(x.size()) * sizeof(float));
  for (int64_t i = 0; i < out.size(); ++i) out.set(i, NAN);
  if (p.swiglu) {
    run(ops::MatMulSwiGlu{.x = x.view(), .w = w, .out = out.view()});
  } else {
    run(ops::MatMul{.x = x.view(), .w = w, .out = out.view()});
  }
  return out.floats();
}

// As it is and, where the device knows strips, in strips of 32.
class Weights {
 public:
  Weights(const WeightCase& c, const Product& p) : plain_(c, p.outputs, p.inputs, 21) {
    if (on_cuda() && c.layout == WeightLayout::kInt4Group && p.outputs % kStrip == 0) {
      striped_ = std::make_unique<StripedWeight>(plain_.view(), kStrip);
    }
  }
  const WeightView& plain() const { return plain_.view(); }
  std::vector<WeightView> all() const {
    std::vector<WeightView> views{plain_.view()};
    if (striped_ != nullptr) views.push_back(striped_->view());
    return views;
  }

 private:
  static constexpr int32_t kStrip = 32;
  RandomWeight plain_;
  std::unique_ptr<StripedWeight> striped_;
};

class ProductRowsTest : public ::testing::TestWithParam<WeightCase> {};

TEST_P(ProductRowsTest, EqualTheReference) {
  OpRunner ref(Backend::kRef), tested(Backend::kCpu);
  for (const Product& p : kProducts) {
    const Weights weights(GetParam(), p);
    const std::vector<float> expected = multiply(ref, p, weights.plain(), 0, kRowsMax);
    for (const WeightView& w : weights.all()) {
      for (const int32_t rows : kRowCounts) {
        SCOPED_TRACE(::testing::Message() << p.outputs << "x" << p.inputs << " swiglu " << p.swiglu
                                          << " strip " << w.strip << " rows " << rows);
        const int64_t count = int64_t{rows} * width_of(p);
        expect_products_close(multiply(tested, p, w, 0, rows),
                              {expected.begin(), expected.begin() + count}, width_of(p));
      }
    }
  }
}

// What verifying a draft rests on.
TEST_P(ProductRowsTest, UpToEightRowsHaveTheBitsOfEachAlone) {
  OpRunner tested(Backend::kCpu);
  for (const Product& p : kProducts) {
    const Weights weights(GetParam(), p);
    for (const WeightView& w : weights.all()) {
      std::vector<float> alone;
      for (int32_t r = 0; r < 8; ++r) {
        const std::vector<float> row = multiply(tested, p, w, r, 1);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      for (int32_t rows = 2; rows <= 8; ++rows) {
        SCOPED_TRACE(::testing::Message() << p.outputs << "x" << p.inputs << " swiglu " << p.swiglu
                                          << " strip " << w.strip << " rows " << rows);
        expect_same_bits(multiply(tested, p, w, 0, rows),
                         {alone.begin(), alone.begin() + int64_t{rows} * width_of(p)});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ProductRowsTest, ::testing::ValuesIn(weight_cases()),
                         [](const auto& p) { return p.param.name(); });

}  // namespace
}  // namespace exode::testing
