// Runs one step. The seam between scheduling and numerics: tests drive the engine with a fake one.
#pragma once

#include <span>

#include "engine/scheduler.h"

namespace exode {

class Stepper {
 public:
  virtual ~Stepper() = default;
  // Computes every slice and returns the drawn token of each (-1 where it does not sample). The
  // span is valid until the next call.
  virtual std::span<const TokenId> step(std::span<const Slice> slices) = 0;
};

}  // namespace exode
