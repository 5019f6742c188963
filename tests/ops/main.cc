// test_ops [--simd=sse4|avx2|best] [gtest flags]: the CPU kernels choose their instructions at run
// time; ctest runs the tests once for each choice (CMakeLists.txt), so that a wide machine tests
// what a narrow one will run.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdio>
#include <string_view>

namespace {

int64_t target_bit(std::string_view name) {
  if (name == "sse4") return HWY_SSE4;
  if (name == "avx2") return HWY_AVX2;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    constexpr std::string_view kFlag = "--simd=";
    const std::string_view argument = argv[i];
    if (argument == "--simd=best") continue;
    const int64_t bit = argument.starts_with(kFlag) ? target_bit(argument.substr(kFlag.size())) : 0;
    if (bit == 0) {
      std::fprintf(stderr, "test_ops: unknown argument '%s'\n", argv[i]);
      return 2;
    }
    if ((hwy::SupportedTargets() & bit) == 0) {
      std::fprintf(stderr, "test_ops: this machine has no %s\n", hwy::TargetName(bit));
      return 77;
    }
    hwy::SetSupportedTargetsForTest(bit);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    std::printf("instructions: %s\n", hwy::TargetName(bit));
  }
  return RUN_ALL_TESTS();
}
