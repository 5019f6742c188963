#include "engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/pool.h"

namespace exode {
namespace {

// Without --kv-memory the pool holds max_num_seqs full contexts, but not more than this: a desktop
// should not lose its memory to a cache nobody asked for.
constexpr size_t kKvDefaultMax = size_t{8} << 30;

double gib(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

size_t kv_bytes_per_block(const ModelSpec& spec, const KvFormat& format) {
  size_t bytes = 0;
  for (const KvGeometry& g : spec.kv_groups) bytes += KvPool::bytes_for(g, format, 1);
  return bytes;
}

Result<int32_t> choose_blocks(const ModelSpec& spec, const KvFormat& format,
                              const EngineConfig& config, size_t available, MemoryPlan& plan) {
  const size_t per_block = kv_bytes_per_block(spec, format);
  const int32_t wanted_context = config.max_model_len > 0 ? config.max_model_len : spec.context_max;
  const auto one_sequence = static_cast<size_t>(blocks_for_tokens(wanted_context));
  const size_t all_sequences = one_sequence * static_cast<size_t>(config.max_num_seqs);
  size_t budget = config.kv_memory > 0 ? config.kv_memory : kKvDefaultMax;
  if (config.max_model_len > 0 && config.kv_memory == 0) {
    budget = std::max(budget, one_sequence * per_block);
  }
  budget = std::min(budget, available);
  const size_t blocks = std::min({all_sequences, budget / per_block, size_t{INT32_MAX}});
  if (blocks == 0) {
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("no memory left for the kv cache ({:.2f} GiB available); lower "
                             "--max-num-seqs, --max-model-len or --max-num-batched-tokens, pick a "
                             "smaller --kv-cache-dtype, or raise the memory limit",
                             gib(available))};
  }
  const auto fits = static_cast<int32_t>(std::min<size_t>(blocks * kKvBlock, INT32_MAX));
  if (config.max_model_len > fits) {
    return Error{
        ErrorCode::kOutOfMemory,
        fmt::format("--max-model-len {} needs {:.2f} GiB of kv cache, {:.2f} GiB are "
                    "available; lower it to {} or less, lower --max-num-seqs or pick a smaller "
                    "--kv-cache-dtype",
                    config.max_model_len, gib(one_sequence * per_block), gib(budget), fits)};
  }
  plan.context_max = std::min(wanted_context, fits);
  return static_cast<int32_t>(blocks);
}

}  // namespace

size_t MemoryPlan::total_bytes() const {
  size_t total = 0;
  for (const PlanLine& line : lines) total += line.bytes;
  return total;
}

Result<MemoryPlan> make_memory_plan(const ModelSpec& spec, const KvFormat& format,
                                    const EngineConfig& config, const MemoryNeeds& needs) {
  MemoryPlan plan;
  plan.state_slots = spec.state ? config.max_num_seqs : 0;
  const size_t state =
      spec.state ? spec.state->bytes_per_slot() * static_cast<size_t>(plan.state_slots) : 0;
  plan.lines = {{"weights", needs.weights},
                {"workspace", needs.workspace},
                {"step io", needs.step_io},
                {"recurrent state", state}};
  const size_t fixed = plan.total_bytes();
  if (fixed > needs.memory) {
    return Error{
        ErrorCode::kOutOfMemory,
        fmt::format(
            "weights, workspace and state need {:.2f} GiB, {:.2f} GiB are available; "
            "lower --max-num-batched-tokens, --max-num-seqs or --max-model-len, or raise the "
            "memory limit",
            gib(fixed), gib(needs.memory))};
  }
  plan.context_max = config.max_model_len > 0 ? config.max_model_len : spec.context_max;
  if (!spec.kv_groups.empty()) {
    EXODE_ASSIGN(plan.kv_blocks, choose_blocks(spec, format, config, needs.memory - fixed, plan));
    plan.lines.push_back(
        {"kv cache", kv_bytes_per_block(spec, format) * static_cast<size_t>(plan.kv_blocks)});
  }
  return plan;
}

}  // namespace exode
