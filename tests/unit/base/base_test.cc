#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "device/arena.h"
#include "device/device.h"

namespace exode {
namespace {

TEST(Half, EveryBf16RoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(float_to_bf16(value), bits);
  }
}

TEST(Half, EveryF16RoundTripsAndAgreesWithTheCompiler) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_float(static_cast<uint16_t>(bits));
    const auto native = std::bit_cast<_Float16>(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(value, static_cast<float>(native));
    EXPECT_EQ(float_to_f16(value), bits);
  }
}

TEST(Half, FloatToF16RoundsLikeTheCompiler) {
  for (uint64_t i = 0; i < 200000; ++i) {
    const float value = (random_unit(1, i) - 0.5f) * std::exp2(static_cast<float>(i % 48) - 28.0f);
    EXPECT_EQ(float_to_f16(value), std::bit_cast<uint16_t>(static_cast<_Float16>(value))) << value;
  }
}

TEST(Half, Fp8KnownValuesAndRoundTrip) {
  EXPECT_EQ(fp8_e4m3_to_float(0x7e), 448.0f);
  EXPECT_EQ(fp8_e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(fp8_e4m3_to_float(0x38), 1.0f);
  EXPECT_EQ(float_to_fp8_e4m3(1e9f), 0x7e);
  EXPECT_EQ(float_to_fp8_e4m3(-0.0f), 0x80);
  for (uint32_t bits = 0; bits < 256; ++bits) {
    if ((bits & 0x7f) == 0x7f) continue;
    EXPECT_EQ(float_to_fp8_e4m3(fp8_e4m3_to_float(static_cast<uint8_t>(bits))), bits);
  }
}

TEST(ThreadPool, EveryIndexOnceForAnyCount) {
  for (int32_t threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int32_t count : {0, 1, 2, 7, 64, 1001}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      pool.parallel_for(count, 1, [&](int32_t begin, int32_t end) {
        for (int32_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)]++;
      });
      for (auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortRegions) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum = 0;
  for (int32_t i = 0; i < 20000; ++i) {
    pool.run(3, [&](int32_t part, int32_t) { sum += part; });
  }
  EXPECT_EQ(sum.load(), 20000 * 3);
}

TEST(Arena, ScopesRewindAndThePeakStays) {
  Arena arena = Arena::counting();
  {
    const auto scope = arena.scope();
    arena.take(100);
    arena.take(1);
  }
  arena.take(64);
  EXPECT_EQ(arena.peak_bytes(), 192u);
}

TEST(Device, RefusesAfterSealAndOverTheLimit) {
  auto device = open_device({.name = "cpu", .threads = 1, .memory_limit = 1 << 20}).value();
  auto held = device->allocate(1 << 19, "a");
  ASSERT_TRUE(held.ok());
  EXPECT_FALSE(device->allocate(1 << 20, "too much").ok());
  device->seal();
  EXPECT_FALSE(device->allocate(64, "late").ok());
}

TEST(Device, UnknownNameIsAnError) {
  EXPECT_FALSE(open_device({.name = "tpu"}).ok());
  EXPECT_FALSE(open_device({.name = "cpu", .threads = -1}).ok());
}

}  // namespace
}  // namespace exode
