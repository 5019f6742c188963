#include "engine/scheduler.h"

#include <algorithm>

#include "ops/gdn.h"

namespace exode {
namespace {

// The longest chunk within the budget whose end is aligned; unaligned only when nothing else fits.
int32_t chunk_rows(int32_t first, int32_t remaining, int32_t budget) {
  if (remaining <= budget) return remaining;
  const int32_t aligned_end = (first + budget) / kGdnChunk * kGdnChunk;
  return aligned_end > first ? aligned_end - first : budget;
}

}  // namespace

std::vector<Slice> schedule_step(std::span<const std::unique_ptr<Sequence>> running,
                                 int32_t rows_max) {
  std::vector<Slice> decodes, prompts;
  int32_t budget = rows_max;
  for (const auto& s : running) {
    if (budget > 0 && s->length_soon() - s->computed == 1 && !s->ends_soon()) {
      decodes.push_back({s.get(), s->computed, 1, true, s->drawn});
      --budget;
    }
  }
  for (const auto& s : running) {
    const int32_t remaining = s->length() - s->computed;
    if (budget == 0 || remaining <= 1 || s->finished()) continue;
    const int32_t count = chunk_rows(s->computed, remaining, budget);
    prompts.push_back({s.get(), s->computed, count, count == remaining});
    budget -= count;
  }
  decodes.insert(decodes.end(), prompts.begin(), prompts.end());
  return decodes;
}

}  // namespace exode
