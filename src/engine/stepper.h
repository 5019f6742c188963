// Runs one step. The seam between scheduling and numerics: tests drive the engine with a fake one.
#pragma once

#include <span>

#include "engine/scheduler.h"

namespace exode {

class Stepper {
 public:
  virtual ~Stepper() = default;
  // Starts computing every slice. Steps are computed in the order of their submission.
  virtual void submit(std::span<const Slice> slices) = 0;
  // The drawn token of each slice of the oldest step not collected yet (-1 where it does not
  // sample). The span is valid until the next call.
  virtual std::span<const TokenId> collect() = 0;
  // Steps that may be submitted beside the one being collected: 0 or 1.
  virtual int32_t ahead() const { return 0; }
};

}  // namespace exode
