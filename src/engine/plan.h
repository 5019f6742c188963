// The memory plan of an engine on a device that need not be there: the same code as at start-up,
// up to the first allocation.
#pragma once

#include <string>
#include <vector>

#include "device/device.h"
#include "engine/api.h"

namespace exode {

struct PlanReport {
  EngineFacts facts;              // family, device, formats
  size_t memory = 0;              // bytes the plan may use
  std::string refusal;            // why --max-model-len does not fit; empty: it does
  std::vector<PlanLine> lines;    // when it fits
  int32_t context = 0;            // what was planned
  int32_t context_max = 0;        // the largest that fits one sequence; 0: not even one block
  int32_t model_context_max = 0;  // what the model was made for
  int64_t kv_tokens = 0;
};

bool has_kernels(Backend backend);  // in this build

// `caps.memory_bytes` is what the plan may use.
Result<PlanReport> plan_engine(const EngineConfig& config, Backend backend, const DeviceCaps& caps);

}  // namespace exode
