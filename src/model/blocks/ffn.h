// Feed-forward blocks: the dense SwiGLU MLP and the Qwen mixture of experts with a gated shared
// expert.
#pragma once

#include <string>

#include "model/model.h"
#include "weights/loader.h"

namespace exode {

struct MlpWeights {
  WeightView gate_up;  // [2 · inner, hidden]
  WeightView down;     // [hidden, inner]
};

// `prefix` names the module, for example "model.layers.0.mlp".
Result<MlpWeights> load_mlp(WeightLoader& loader, int32_t hidden, int32_t inner,
                            const std::string& prefix);
void run_mlp(Exec& x, const MlpWeights& w, ConstTensorView h, TensorView out);

struct MoeConfig {
  int32_t hidden = 0, experts = 0, top_k = 0, expert_inner = 0, shared_inner = 0;
  bool normalize = true;  // norm_topk_prob
};

struct MoeWeights {
  WeightView router;         // [experts, hidden], and a row for the gate of the shared expert
  WeightView gate_up, down;  // expert stacks, see ops/moe.h
  MlpWeights shared;         // empty when shared_inner is 0
};

// Accepts fused 3-D expert tensors and one module per expert (every quantised export).
Result<MoeWeights> load_moe(WeightLoader& loader, const MoeConfig& config,
                            const std::string& prefix);
void run_moe(Exec& x, const MoeConfig& config, const MoeWeights& w, ConstTensorView h,
             TensorView out);

}  // namespace exode
