// The delta rule over one aligned chunk of kGdnChunk tokens in matrix form (Yang et al. 2024).
//
// With G the inclusive sum of the log decays and Γ_ts = e^(G_t − G_s) for s ≤ t, the corrections
// d_t (rows of D) solve the unit-lower-triangular system
//   d_t + Σ_{s<t} β_t (k_t·k_s) Γ_ts d_s = β_t (v_t − e^{G_t} S k_t)
// and then
//   o_t = e^{G_t} S q_t + Σ_{s≤t} (q_t·k_s) Γ_ts d_s,   S ← e^{G_C} S + Σ_t e^{G_C − G_t} d_t k_tᵀ.
// Exact algebra: it equals the recurrence up to rounding. e^(−G) alone is never formed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/gdn.h"

namespace exode::cpu {

// One value head; rows are strided, heads are dense.
struct DeltaChunk {
  const float *q = nullptr, *k = nullptr;  // [kGdnChunk, key_dim], normalised, q scaled
  const float* v = nullptr;                // first row of the head's values
  int64_t v_stride = 0;
  const float *g = nullptr, *beta = nullptr;  // first row of the head's gates
  int64_t gate_stride = 0;
  float* state = nullptr;  // [value_dim, key_dim], updated
  float* out = nullptr;
  int64_t out_stride = 0;
  int32_t key_dim = 0, value_dim = 0;  // multiples of 16
  float* scratch = nullptr;            // delta_chunk_scratch() floats
};

size_t delta_chunk_scratch(int32_t value_dim);
void delta_chunk(const DeltaChunk& chunk);

}  // namespace exode::cpu
