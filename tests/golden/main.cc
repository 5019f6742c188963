// Golden tests on another device, or where neither sources nor the build folder are:
//   test_fixtures [--device=cuda] [--references=DIR] [--checkpoints=DIR] [gtest flags]
// Ends with 77, which ./x device-test reads as skipped, where the device cannot be opened.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string_view>

#include "device/device.h"
#include "golden/reference.h"

namespace {

constexpr int kSkipped = 77, kBadArgument = 2;

bool take(std::string_view argument, std::string_view flag, std::string& value) {
  if (!argument.starts_with(flag)) return false;
  value = argument.substr(flag.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  exode::testing::GoldenPlaces& places = exode::testing::golden_places();
  for (int i = 1; i < argc; ++i) {
    if (take(argv[i], "--device=", places.device) ||
        take(argv[i], "--references=", places.references) ||
        take(argv[i], "--checkpoints=", places.checkpoints)) {
      continue;
    }
    fmt::print(stderr, "unknown argument '{}'\n", argv[i]);
    return kBadArgument;
  }
  if (const auto device = exode::open_device({.name = places.device}); !device.ok()) {
    fmt::print(stderr, "{}\n", device.error().message);
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
