// Softmax attention with grouped KV heads, the block shared by every family: fused q/k/v
// projection, optional q/k norm, rotary embedding, paged cache, optional sigmoid output gate.
#pragma once

#include <string>

#include "model/model.h"
#include "model/rope.h"
#include "weights/loader.h"

namespace exode {

struct AttentionConfig {
  int32_t hidden = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
  bool output_gate = false;  // q_proj holds [q ‖ gate] per head (Qwen3.5)
  bool qk_norm = false;
  float eps = 1e-6f;
  float norm_bias = 0;  // 1 where the checkpoint stores (weight − 1)
  Rope rope;

  int32_t q_width() const { return q_heads * head_dim; }
  int32_t kv_width() const { return kv_heads * head_dim; }
};

struct AttentionWeights {
  WeightView qkv;  // [q ‖ gate (if any) ‖ k ‖ v, hidden], heads contiguous in each part
  WeightView out;  // [hidden, q_width]
  ConstTensorView q_norm, k_norm, inv_freq;
};

// `prefix` names the module, for example "model.layers.3.self_attn".
Result<AttentionWeights> load_attention(WeightLoader& loader, const AttentionConfig& config,
                                        const std::string& prefix);

// out[rows, hidden] = attention of h[rows, hidden].
void run_attention(Exec& x, const StepInputs& in, const AttentionConfig& config,
                   const AttentionWeights& w, const KvView& cache, ConstTensorView h,
                   TensorView out);

}  // namespace exode
