#include "engine/plan.h"

#include <algorithm>

#include "engine/runner.h"

namespace exode {
namespace {

// The largest context that a plan accepts, in whole blocks; needs grow with the context.
int32_t largest_context(ModelRunner& runner, int32_t limit) {
  int32_t fits = 0, refused = blocks_for_tokens(limit) + 1;
  while (refused - fits > 1) {
    const int32_t blocks = fits + (refused - fits) / 2;
    (runner.plan_for(std::min(blocks * kKvBlock, limit)).ok() ? fits : refused) = blocks;
  }
  return std::min(fits * kKvBlock, limit);
}

}  // namespace

bool has_kernels(Backend backend) {
  const OpTable table = backend == Backend::kCuda ? cuda_ops({}, Numerics::kFast) : cpu_ops({});
  return std::get<Kernel<ops::RmsNorm>>(table.kernels).launch != nullptr;
}

Result<PlanReport> plan_engine(const EngineConfig& config, Backend backend,
                               const DeviceCaps& caps) {
  EngineConfig all = config;
  all.memory_limit = caps.memory_bytes;
  EXODE_ASSIGN(const auto runner,
               ModelRunner::plan_only(all, make_described_device(backend, caps)));
  PlanReport report;
  report.facts = runner->facts();
  report.memory = caps.memory_bytes;
  report.model_context_max = runner->spec().context_max;
  report.context_max = largest_context(*runner, report.model_context_max);
  report.context = config.max_model_len > 0 ? config.max_model_len : report.context_max;
  const Result<MemoryPlan> plan = runner->plan_for(report.context);
  if (!plan.ok()) {
    report.refusal = plan.error().message;
    return report;
  }
  report.lines = plan.value().lines;
  report.kv_tokens = int64_t{plan.value().kv_blocks} * kKvBlock;
  return report;
}

}  // namespace exode
