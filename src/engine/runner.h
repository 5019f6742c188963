// The real Stepper: owns the device, the model, the pools and every byte they use.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/memory_plan.h"
#include "engine/step_buffers.h"
#include "engine/stepper.h"
#include "kv/pool.h"
#include "model/registry.h"

namespace exode {

struct OpTime {
  std::string_view op;
  Cost cost;  // of attention: for the lengths of the slices
  double seconds = 0;
};

class ModelRunner final : public Stepper {
 public:
  // Opens, plans, allocates, loads and seals: afterwards no step can fail for lack of memory.
  static Result<std::unique_ptr<ModelRunner>> create(const EngineConfig& config);

  // As far as the plan, on a device that need not be there (device/device.h).
  static Result<std::unique_ptr<ModelRunner>> plan_only(const EngineConfig& config,
                                                        std::unique_ptr<Device> device);
  // Plans again for another context; what was allocated stays as it is.
  Result<MemoryPlan> plan_for(int32_t max_model_len);

  void submit(std::span<const Slice> slices) override;
  std::span<const TokenId> collect() override;
  int32_t ahead() const override;
  Status evaluate(std::span<const TokenId> tokens, const Engine::LogitRows& rows);
  // Runs the slices once, launch by launch and outside any graph, and times every op.
  std::vector<OpTime> profile(std::span<const Slice> slices);

  const Device& device() const { return *device_; }
  const EngineFacts& facts() const { return facts_; }
  const ModelSpec& spec() const { return model_->spec(); }
  KvPool* kv() { return kv_ ? &*kv_ : nullptr; }                 // null: no layer has a KV cache
  StatePool* states() { return states_ ? &*states_ : nullptr; }  // null: nothing recurrent

 private:
  explicit ModelRunner(const EngineConfig& config) : config_(config) {}
  Status open(std::unique_ptr<Device> device);
  Status plan(const Checkpoint& checkpoint);
  Status plan_memory();
  size_t usable_memory() const;
  size_t plan_workspace() const;
  Status load(const Checkpoint& checkpoint);
  LoadOptions load_options(Arena& host) const;
  Status allocate();
  void describe(const Checkpoint& checkpoint);
  Caches make_caches(bool planning) const;
  StepLimits limits(const ModelSpec& spec) const;
  Status prepare();
  Status self_test();
  // Logits and drawn tokens of a few steps of made-up sequences.
  std::vector<std::byte> trace(const StepShape& shape, const std::function<void()>& step);
  StepShape padded(const StepShape& shape, bool decodes) const;
  std::vector<StepShape> planned_shapes() const;
  void run(Exec& x, const Caches& caches, const StepShape& shape) const;
  void run(const StepShape& shape, Trace* trace = nullptr);
  bool is_decode(std::span<const Slice> slices) const;
  Cost attention_cost(const Cost& bound, std::span<const Slice> slices) const;
  Status check_limit();

  EngineConfig config_;
  std::unique_ptr<Device> device_;
  OpTable ops_;
  const KvFormat* format_ = nullptr;
  MemoryPlan plan_;
  MemoryNeeds needs_;
  size_t weight_bytes_ = 0;
  size_t embedding_host_bytes_ = 0;
  Buffer embedding_memory_;  // host memory of the embedding table, when it is there
  Buffer weight_memory_, workspace_memory_, io_memory_, state_memory_, kv_memory_;
  std::unique_ptr<Model> model_;
  std::optional<StepBuffers> buffers_;
  std::optional<KvPool> kv_;
  std::optional<StatePool> states_;
  Caches caches_;
  std::optional<Arena> workspace_;
  std::map<StepShape, std::unique_ptr<StepGraph>> graphs_;  // of decode steps
  struct Submitted {
    int64_t ticket = 0;
    size_t result = 0;                // index into results_
    std::vector<bool> slice_samples;  // per slice
  };
  std::deque<Submitted> submitted_;
  std::array<Buffer, 2> results_;  // drawn tokens on the host
  size_t next_result_ = 0;
  std::vector<TokenId> drawn_;
  std::vector<float> host_logits_;
  EngineFacts facts_;
};

}  // namespace exode
