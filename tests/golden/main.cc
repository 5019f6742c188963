// The fixture tests on another device: test_fixtures --device=cuda
#include <gtest/gtest.h>

#include <string_view>

#include "golden/reference.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    constexpr std::string_view kDevice = "--device=";
    if (arg.starts_with(kDevice)) exode::testing::test_device() = arg.substr(kDevice.size());
  }
  return RUN_ALL_TESTS();
}
