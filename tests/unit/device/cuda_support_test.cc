#include "device/cuda_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/device.h"

namespace exode {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kGiB = size_t{1} << 30;

CudaGpu gpu(int major, int minor, size_t free_bytes = 20 * kGiB) {
  return {.name = "Test GPU",
          .major = major,
          .minor = minor,
          .free_bytes = free_bytes,
          .total_bytes = 24 * kGiB};
}

std::string refusal(const CudaGpu& g, std::string_view archs = "80,86,89,90,120") {
  const Status status = require_usable(g, archs, kGiB / 2);
  return status.ok() ? "" : status.error().message;
}

TEST(CudaSupport, NamesTheMissingDriver) {
  const Error e =
      explain({.status = 35, .text = "x", .driver_version = 0, .runtime_version = 13000});
  EXPECT_EQ(e.code, ErrorCode::kUnsupported);
  EXPECT_THAT(e.message, AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("CUDA 13.0"),
                               HasSubstr("--gpus all"), HasSubstr("--device cpu")));
}

TEST(CudaSupport, NamesBothVersionsWhenTheDriverIsTooOld) {
  const Error e =
      explain({.status = 35, .text = "x", .driver_version = 12020, .runtime_version = 13000});
  EXPECT_THAT(e.message, AllOf(HasSubstr("supports CUDA 12.2"), HasSubstr("needs 13.0"),
                               HasSubstr("update the driver"), Not(HasSubstr("no NVIDIA driver"))));
}

TEST(CudaSupport, TellsNoGpuFromATakenOne) {
  EXPECT_THAT(explain({.status = 100, .text = "x"}).message,
              AllOf(HasSubstr("no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(explain({.status = 46, .text = "x"}).message, HasSubstr("exclusive"));
  const Error full = explain({.status = 2, .text = "x"});
  EXPECT_EQ(full.code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(full.message, HasSubstr("no memory left"));
}

TEST(CudaSupport, PassesOnWhatItDoesNotKnow) {
  EXPECT_THAT(explain({.status = 999, .text = "unknown error"}).message,
              AllOf(HasSubstr("unknown error"), HasSubstr("nvidia-smi")));
}

TEST(CudaSupport, RefusesGpusBeforeAmpere) {
  EXPECT_THAT(refusal(gpu(7, 5)), AllOf(HasSubstr("Test GPU has compute capability 7.5"),
                                        HasSubstr("needs 8.0"), HasSubstr("cuda:N")));
}

TEST(CudaSupport, RefusesGpusOlderThanTheKernels) {
  EXPECT_THAT(refusal(gpu(8, 6), "90"),
              AllOf(HasSubstr("code for compute capability 9.0"), HasSubstr("has 8.6"),
                    HasSubstr("-DEXODE_CUDA_ARCHS=86")));
  EXPECT_THAT(refusal(gpu(8, 6), "90a,89"), HasSubstr("8.9 and newer"));
}

TEST(CudaSupport, TakesEveryGpuThatTheKernelsRunOn) {
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 6}, {8, 9}, {9, 0}, {12, 0}, {10, 3}}) {
    EXPECT_EQ(refusal(gpu(major, minor)), "");
  }
  EXPECT_EQ(refusal(gpu(9, 0), "90a"), "");
  EXPECT_EQ(refusal(gpu(12, 0), "90"), "");
}

TEST(CudaSupport, RefusesAGpuThatOthersHaveFilled) {
  EXPECT_THAT(refusal(gpu(9, 0, kGiB / 4)), AllOf(HasSubstr("0.25 of 24.00 GiB free"),
                                                  HasSubstr("0.50"), HasSubstr("nvidia-smi")));
}

// Without a GPU, and in builds without CUDA, opening one is an error and not a crash.
TEST(CudaSupport, OpeningEndsWithADeviceOrAnAnswer) {
  const auto device = open_device({.name = "cuda"});
  if (!device.ok()) {
    EXPECT_THAT(device.error().message, HasSubstr("--device cpu"));
  }
}

}  // namespace
}  // namespace exode
