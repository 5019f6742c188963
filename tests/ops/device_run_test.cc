// What stands between the op tests and a device: copies go to the right places, and kernels that
// write where they must not are caught.
#include "ops/device_run.h"

#include <gtest/gtest-spi.h>

#include "ops/compare.h"
#include "ops/random_weight.h"

namespace exode::testing {
namespace {

struct Halves {  // as ops are: tensors, plain values, structs of both
  struct Inner {
    ConstTensorView in;
    int32_t factor = 1;
  } inner;
  TensorView left, right;
  float scale = 1;
};

class DeviceRunTest : public ::testing::Test {
 protected:
  DeviceRunTest() {
    table_.fill(1);
    in_.fill(2);
  }
  void SetUp() override {
    if (target().isolated) GTEST_SKIP() << "guards are left to the memory checker";
  }
  // Two column ranges of one table, which lie in each other's rows.
  Halves op() {
    return {.inner = {.in = in_.view()},
            .left = table_.view().slice_cols(0, 4),
            .right = table_.view().slice_cols(6, 4)};
  }
  std::unique_ptr<Device> device_ = open_device({.name = "cpu", .threads = 1}).value();
  DeviceMemory memory_;
  HostTensor table_{DType::kF32, {3, 10}}, in_{DType::kF32, {5}};
};

TEST_F(DeviceRunTest, ViewsOfOneTensorStayTogetherAndComeBack) {
  DeviceRun run(*device_, memory_, "halves");
  const Halves placed = run.place(op());
  EXPECT_NE(placed.left.data, op().left.data);
  EXPECT_EQ(placed.right.data - placed.left.data, 6 * 4);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(placed.inner.in.data) % 64, 0u);
  EXPECT_EQ(placed.inner.in.row<float>(0)[3], in_.get(3));
  std::vector<float> expected = table_.floats();
  placed.right.row<float>(2)[1] = expected[2 * 10 + 7] = 42;
  run.scratch(100)[99] = std::byte{1};
  run.finish();
  expect_same_bits(table_.floats(), expected);
}

TEST_F(DeviceRunTest, CatchesAWritePastTheEnd) {
  DeviceRun run(*device_, memory_, "halves");
  const Halves placed = run.place(op());
  placed.left.row<float>(3)[0] = 0;
  EXPECT_NONFATAL_FAILURE(run.finish(), "halves wrote outside of its tensors");
}

TEST_F(DeviceRunTest, CatchesAWriteBeforeTheStart) {
  DeviceRun run(*device_, memory_, "halves");
  const Halves placed = run.place(op());
  placed.left.row<float>(0)[-1] = 0;
  EXPECT_NONFATAL_FAILURE(run.finish(), "halves wrote outside of its tensors");
}

TEST_F(DeviceRunTest, CatchesAWriteIntoAnInput) {
  DeviceRun run(*device_, memory_, "halves");
  const Halves placed = run.place(op());
  const_cast<float*>(placed.inner.in.row<float>(0))[2] = 0;
  EXPECT_NONFATAL_FAILURE(run.finish(), "halves wrote into an input");
}

TEST_F(DeviceRunTest, CatchesAWritePastTheScratchMemory) {
  DeviceRun run(*device_, memory_, "halves");
  run.place(op());
  run.scratch(100).data()[100] = std::byte{1};
  EXPECT_NONFATAL_FAILURE(run.finish(), "halves wrote past its scratch memory");
}

TEST(StripedWeightTest, RowsOfAStripLieBlockByBlock) {
  const RandomWeight plain({WeightLayout::kInt4Group, DType::kU8, 128, true}, 64, 300, 1);
  const StripedWeight striped(plain.view(), 32);
  const WeightView &p = plain.view(), &s = striped.view();
  const int32_t row = 37, block = 2, in_strip = 37 - 32, blocks = 3;
  EXPECT_EQ(std::memcmp(p.codes.row<uint8_t>(row) + 64 * block,
                        s.codes.row<uint8_t>(0) + (32 * blocks + block * 32 + in_strip) * 64, 64),
            0);
  EXPECT_EQ(p.scales.row<float>(row)[1], s.scales.row<float>(0)[32 * blocks + 1 * 32 + in_strip]);
  EXPECT_EQ(p.zeros.row<uint8_t>(row)[1], s.zeros.row<uint8_t>(0)[32 * blocks + 32 + in_strip]);
}

}  // namespace
}  // namespace exode::testing
