// What the op tests hold against the reference: the CPU kernels, or with --device=cuda those of a
// CUDA device. A test says Backend::kCpu for either.
#pragma once

#include <memory>

#include "device/device.h"
#include "ops/table.h"

namespace exode::testing {

struct Target {
  std::unique_ptr<Device> cuda;  // null: the CPU
  Numerics numerics = Numerics::kExact;
  bool guarded = false;   // CPU ops too run on copies of their tensors, between guards
  bool isolated = false;  // copies have an allocation each, for memory checkers
};

Target& target();  // set by main() once, before any test

inline bool on_cuda() { return target().cuda != nullptr; }
// Whether matrix products may take 16-bit operands.
inline bool fast_math() { return target().numerics == Numerics::kFast; }

// Whether the words through which blocks of a kernel talk are as the next kernel expects them.
bool counters_are_zero(Device& device);
bool exchange_is_unset(Device& device);

}  // namespace exode::testing
