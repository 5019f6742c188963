// Every byte the engine will ever use, decided before the first request.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/api.h"
#include "model/model.h"

namespace exode {

struct MemoryPlan {
  std::vector<PlanLine> lines;
  int32_t kv_blocks = 0;
  int32_t context_max = 0;  // tokens one sequence may reach
  int32_t state_slots = 0;
  size_t total_bytes() const;
};

struct MemoryNeeds {
  size_t weights = 0, workspace = 0, step_io = 0;
  size_t memory = 0;  // what the device offers
};

// Chooses the KV size and context. When the configured context does not fit, the error names the
// largest one that does.
Result<MemoryPlan> make_memory_plan(const ModelSpec& spec, const KvFormat& format,
                                    const EngineConfig& config, const MemoryNeeds& needs);

}  // namespace exode
