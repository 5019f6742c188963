// The real Stepper: owns the device, the model, the pools and every byte they use.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/memory_plan.h"
#include "engine/step_buffers.h"
#include "engine/stepper.h"
#include "kv/pool.h"
#include "model/registry.h"

namespace exode {

class ModelRunner final : public Stepper {
 public:
  // Opens, plans, allocates, loads and seals: afterwards no step can fail for lack of memory.
  static Result<std::unique_ptr<ModelRunner>> create(const EngineConfig& config);

  std::span<const TokenId> step(std::span<const Slice> slices) override;
  Status evaluate(std::span<const TokenId> tokens, const Engine::LogitRows& rows);

  const EngineFacts& facts() const { return facts_; }
  const ModelSpec& spec() const { return model_->spec(); }
  KvPool* kv() { return kv_ ? &*kv_ : nullptr; }                 // null: no layer has a KV cache
  StatePool* states() { return states_ ? &*states_ : nullptr; }  // null: nothing recurrent

 private:
  explicit ModelRunner(const EngineConfig& config) : config_(config) {}
  Status open();
  Status plan(const Checkpoint& checkpoint);
  size_t plan_workspace(const Model& model) const;
  Status load(const Checkpoint& checkpoint);
  Status allocate();
  void describe(const Checkpoint& checkpoint);
  Caches make_caches(bool planning) const;
  StepLimits limits(const ModelSpec& spec) const;
  void forward(const StepInputs& inputs, const StepOutputs& outputs);

  EngineConfig config_;
  std::unique_ptr<Device> device_;
  OpTable ops_;
  const KvFormat* format_ = nullptr;
  MemoryPlan plan_;
  MemoryNeeds needs_;
  Buffer weight_memory_, workspace_memory_, io_memory_, state_memory_, kv_memory_;
  std::unique_ptr<Model> model_;
  std::optional<StepBuffers> buffers_;
  std::optional<KvPool> kv_;
  std::optional<StatePool> states_;
  Caches caches_;
  std::optional<Arena> workspace_;
  std::vector<TokenId> drawn_, results_;
  std::vector<float> host_logits_;
  EngineFacts facts_;
};

}  // namespace exode
