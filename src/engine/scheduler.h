// Decides which rows run in the next step. A pure function of its arguments: no device, no clock.
//
// Every sequence that is ready to decode gets its row; the rest of the row budget goes to prompts
// in arrival order, in chunks. Chunk ends fall on multiples of 64 positions where the budget
// allows, so that the chunked delta rule always sees whole chunks.
#pragma once

#include <span>
#include <vector>

#include "engine/sequence.h"

namespace exode {

// Rows [first, first + count) of a sequence in this step; `samples`: the last row is the last
// token, so the step draws the next one. `drawn` >= 0: the row's token is not known to the host
// yet; it is what that sample of the step before draws.
struct Slice {
  Sequence* sequence = nullptr;
  int32_t first = 0, count = 0;
  bool samples = false;
  int32_t drawn = -1;
};

// `running` in arrival order. Returns at most rows_max rows; never empty while something runs.
std::vector<Slice> schedule_step(std::span<const std::unique_ptr<Sequence>> running,
                                 int32_t rows_max);

}  // namespace exode
