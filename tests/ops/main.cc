// test_ops [--device=cuda [--math=exact|fast]] [--simd=sse4|avx2|avx3|best] [--guarded]
//          [--isolated] [gtest flags]
//
// --device  what is held against the reference (ops/target.h)
// --math    fast: matrix products with 16-bit operands, bounds to match
// --simd    the CPU kernels choose their instructions at run time; ctest runs the tests once for
//           each choice (CMakeLists.txt), so that a wide machine tests what a narrow one will run
// Ends with 77, which ctest and ./x device-test read as skipped, where the machine lacks it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <string_view>

#include "ops/target.h"

namespace exode::testing {
namespace {

constexpr int kSkipped = 77, kBadArgument = 2;

int64_t target_bit(std::string_view name) {
  if (name == "sse4") return HWY_SSE4;
  if (name == "avx2") return HWY_AVX2;
  if (name == "avx3") return HWY_AVX3;  // AVX-512 without the dot products of bytes
  return 0;
}

int choose_simd(std::string_view name) {
  if (name == "best") return 0;
  const int64_t bit = target_bit(name);
  if (bit == 0) return kBadArgument;
  if ((hwy::SupportedTargets() & bit) == 0) {
    fmt::print(stderr, "test_ops: this machine has no {}\n", hwy::TargetName(bit));
    return kSkipped;
  }
  hwy::SetSupportedTargetsForTest(bit);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  fmt::print("instructions: {}\n", hwy::TargetName(bit));
  return 0;
}

int choose_device(std::string_view name) {
  if (name == "cpu") return 0;
  auto device = open_device({.name = std::string(name)});
  if (!device.ok()) {
    fmt::print(stderr, "test_ops: {}\n", device.error().message);
    return kSkipped;
  }
  target().cuda = std::move(device).value();
  fmt::print("device: {}\n", target().cuda->caps().name);
  // Refusals happen before a device is asked, and a forked process cannot use CUDA.
  GTEST_FLAG_SET(filter, GTEST_FLAG_GET(filter) +
                             (GTEST_FLAG_GET(filter).find('-') == std::string::npos ? "-" : ":") +
                             "*Death*");
  return 0;
}

int choose_math(std::string_view name) {
  if (name != "exact" && name != "fast") return kBadArgument;
  target().numerics = name == "fast" ? Numerics::kFast : Numerics::kExact;
  return 0;
}

int choose(std::string_view argument) {
  constexpr struct {
    std::string_view flag;
    int (*choose)(std::string_view);
  } kFlags[] = {{"--simd=", choose_simd}, {"--device=", choose_device}, {"--math=", choose_math}};
  for (const auto& [flag, chooser] : kFlags) {
    if (argument.starts_with(flag)) return chooser(argument.substr(flag.size()));
  }
  if (argument == "--guarded") target().guarded = true;
  if (argument == "--isolated") target().isolated = true;
  return argument == "--guarded" || argument == "--isolated" ? 0 : kBadArgument;
}

class ExchangeCheck final : public ::testing::Environment {
  void TearDown() override {
    if (on_cuda() && !exchange_is_unset(*target().cuda)) {
      ADD_FAILURE() << "a kernel left words other than kUnset in the stream's exchange";
    }
  }
};

}  // namespace
}  // namespace exode::testing

int main(int argc, char** argv) {
  using namespace exode::testing;
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const int problem = choose(argv[i]);
    if (problem == kBadArgument) fmt::print(stderr, "test_ops: unknown argument '{}'\n", argv[i]);
    if (problem != 0) return problem;
  }
  ::testing::AddGlobalTestEnvironment(new ExchangeCheck);
  const int failed = RUN_ALL_TESTS();
  target().cuda.reset();
  return failed;
}
