#include "ops/memory.h"

#include "ops/compare.h"

namespace exode {
namespace {

using testing::HostTensor;
using testing::OpRunner;

// More than one run of the CPU kernels, and no round number.
const Shape kShapes[] = {{1}, {7}, {3, 5}, {600001}};

std::vector<float> filled(Backend backend, DType dtype, const Shape& shape) {
  OpRunner run(backend, 3);
  HostTensor out(dtype, shape);
  run(ops::FillRandom{.out = out.view(), .seed = 11, .low = -0.5f, .high = 1.5f});
  return out.floats();
}

TEST(MemoryOpsTest, FillGivesTheSameBitsAsTheReference) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kU8}) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(dtype_name(dtype));
      testing::expect_same_bits(filled(Backend::kCpu, dtype, shape),
                                filled(Backend::kRef, dtype, shape));
    }
  }
}

TEST(MemoryOpsTest, FillIsEvenlySpread) {
  double sum = 0, squares = 0;
  const std::vector<float> values = filled(Backend::kCpu, DType::kF32, {600001});
  for (const float value : values) {
    ASSERT_GE(value, -0.5f);
    ASSERT_LE(value, 1.5f);
    sum += value;
    squares += value * value;
  }
  const double count = static_cast<double>(values.size()), mean = sum / count;
  EXPECT_NEAR(mean, 0.5, 0.01);
  EXPECT_NEAR(squares / count - mean * mean, 4.0 / 12, 0.01);
}

TEST(MemoryOpsTest, FillWithAnotherSeedDiffers) {
  OpRunner run(Backend::kCpu);
  HostTensor a(DType::kU8, {64}), b(DType::kU8, {64});
  run(ops::FillRandom{.out = a.view(), .seed = 1});
  run(ops::FillRandom{.out = b.view(), .seed = 2});
  EXPECT_NE(a.floats(), b.floats());
}

TEST(MemoryOpsTest, ReadCoversEveryWord) {
  constexpr int32_t kWords = 5000, kParts = 7;
  HostTensor x(DType::kU8, {kWords * 4});
  OpRunner cpu(Backend::kCpu, 3), ref(Backend::kRef);
  cpu(ops::FillRandom{.out = x.view(), .seed = 5});
  const auto read = [&](OpRunner& run) {
    HostTensor out(DType::kI32, {kParts});
    run(ops::ReadWords{.x = x.cview(), .out = out.view()});
    const auto* parts = out.view().row<uint32_t>(0);
    return std::vector<uint32_t>(parts, parts + kParts);
  };
  const std::vector<uint32_t> parts = read(cpu);
  EXPECT_EQ(parts, read(ref));
  for (const int32_t word : {0, 703, 704, 4095, kWords - 1}) {
    const std::byte kept = x.view().data[word * 4 + 2];
    x.view().data[word * 4 + 2] ^= std::byte{1};
    EXPECT_NE(read(cpu), parts) << word;
    x.view().data[word * 4 + 2] = kept;
  }
}

TEST(MemoryOpsTest, CopyTakesEveryByte) {
  for (const int32_t bytes : {1, 33, 1 << 20, 600001}) {
    HostTensor x(DType::kU8, {bytes}), out(DType::kU8, {bytes});
    OpRunner run(Backend::kCpu, 3);
    run(ops::FillRandom{.out = x.view(), .seed = 3});
    run(ops::CopyBytes{.x = x.cview(), .out = out.view()});
    EXPECT_EQ(out.floats(), x.floats());
  }
}

}  // namespace
}  // namespace exode
