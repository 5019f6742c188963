// Counter-based random numbers (splitmix64 finaliser): value = f(key, counter), no state. A draw
// depends only on (seed, position), so batching, retries and speculation cannot change it.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace exode {

EXODE_HOST_DEVICE inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

EXODE_HOST_DEVICE inline uint64_t random_bits(uint64_t key, uint64_t counter) {
  return mix64(mix64(key) ^ (counter * 0xd1342543de82ef95u));
}

// Uniform in [0, 1) with 24 bits, exact in float.
EXODE_HOST_DEVICE inline float random_unit(uint64_t key, uint64_t counter) {
  return static_cast<float>(random_bits(key, counter) >> 40) * 0x1p-24f;
}

}  // namespace exode
