#include "ops/probe.h"

#include <cstring>
#include <fstream>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/probe.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace exode::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

uint64_t read_all(const uint64_t* data, size_t lines) {
  const hn::CappedTag<uint64_t, 8> d;
  constexpr size_t kLine = 8;
  auto sum = hn::Zero(d);
  for (size_t i = 0; i < lines; ++i) {
    const uint64_t* line = data + i * kLine;
    hwy::Prefetch(line + 64 * kLine);
    for (size_t lane = 0; lane < kLine; lane += hn::Lanes(d)) {
      sum = hn::Add(sum, hn::LoadU(d, line + lane));
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Twelve chains cover the latency of two multiply-add units.
float multiply_add(int64_t rounds, double& flops) {
  const hn::CappedTag<float, 16> d;
  const auto factor = hn::Set(d, 0.5f), term = hn::Set(d, 1.0f);
  // Different starts, or the compiler would find that all chains are one.
  auto a = hn::Set(d, 1.0f);
  auto b = hn::Set(d, 2.0f);
  auto c = hn::Set(d, 3.0f);
  auto e = hn::Set(d, 4.0f);
  auto f = hn::Set(d, 5.0f);
  auto g = hn::Set(d, 6.0f);
  auto h = hn::Set(d, 7.0f);
  auto i = hn::Set(d, 8.0f);
  auto j = hn::Set(d, 9.0f);
  auto k = hn::Set(d, 10.0f);
  auto l = hn::Set(d, 11.0f);
  auto m = hn::Set(d, 12.0f);
  for (int64_t round = 0; round < rounds; ++round) {
    a = hn::MulAdd(a, factor, term);
    b = hn::MulAdd(b, factor, term);
    c = hn::MulAdd(c, factor, term);
    e = hn::MulAdd(e, factor, term);
    f = hn::MulAdd(f, factor, term);
    g = hn::MulAdd(g, factor, term);
    h = hn::MulAdd(h, factor, term);
    i = hn::MulAdd(i, factor, term);
    j = hn::MulAdd(j, factor, term);
    k = hn::MulAdd(k, factor, term);
    l = hn::MulAdd(l, factor, term);
    m = hn::MulAdd(m, factor, term);
  }
  flops = 2.0 * 12 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
  const auto left = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(f, g));
  const auto right = hn::Add(hn::Add(hn::Add(h, i), hn::Add(j, k)), hn::Add(l, m));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(left, right)));
}

int64_t target() { return HWY_TARGET; }

}  // namespace exode::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exode::bench {

HWY_EXPORT(read_all);
HWY_EXPORT(multiply_add);
HWY_EXPORT(target);

uint64_t read_all(std::span<const std::byte> data) {
  return HWY_DYNAMIC_DISPATCH(read_all)(reinterpret_cast<const uint64_t*>(data.data()),
                                        data.size() / 64);
}

float multiply_add(int64_t rounds, double& flops) {
  return HWY_DYNAMIC_DISPATCH(multiply_add)(rounds, flops);
}

std::string instruction_set() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(target)()); }

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace exode::bench
#endif  // HWY_ONCE
