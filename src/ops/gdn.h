// The ops of a Gated DeltaNet layer (Yang et al. 2024; Qwen3.5 conventions: qwen35 checkpoints).
// With u = W_qkv n [rows, C], C = 2·key_heads·key_dim + value_heads·value_dim, order q ‖ k ‖ v:
//
//   CausalConv   c_t[ch] = silu( Σ_j W[ch, j] · u_{t−3+j}[ch] ), tap width−1 = current token;
//                inputs before the sequence start are 0, those before the slice in conv_tail.
//   GdnGates     g = −exp(a_log) · softplus(a + dt_bias) ≤ 0;  beta = sigmoid(b)
//   GatedDelta   per value head h with key head h / (value_heads / key_heads), S = [value][key]:
//                q̂ = q · rsqrt(Σq² + 1e-6) · key_dim^−½ ;  k̂ = k · rsqrt(Σk² + 1e-6)
//                S ← e^g S;  d = beta (v − S k̂);  S ← S + d k̂ᵀ;  out = S q̂
//   GatedRmsNorm out = weight · x rsqrt(mean(x²) + eps) · silu(z) per value head; norm before gate
//
//   GatedDeltaNet is all four, from the input projections to the input of the output projection.
//   Models run it; a backend may fuse it or run the parts (ops/gdn_parts.h).
//
// CausalConv and GatedDelta read the slot's state (zero when SeqRows.fresh), and leave the state
// after the slice's last row in it. GatedDelta uses the recurrence for rows that do not fill an
// aligned chunk of kGdnChunk positions and the chunked form (exact algebra, other rounding) for
// rows that do. Which form computes a position depends on how the prompt was cut; agreement is
// within f32 rounding (tests bound it at 1e-4), or within that of halves with kFast numerics.
#pragma once

#include "base/host_device.h"
#include "ops/op.h"
#include "ops/rows.h"

namespace exode {

inline constexpr int32_t kGdnChunk = 64;

struct GdnShape {
  int32_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  EXODE_HOST_DEVICE int32_t key_width() const { return key_heads * key_dim; }
  EXODE_HOST_DEVICE int32_t value_width() const { return value_heads * value_dim; }
  EXODE_HOST_DEVICE int32_t conv_channels() const { return 2 * key_width() + value_width(); }
};

// The recurrent state of one layer for all slots.
struct StateView {
  TensorView base;       // [slots, value_heads · value_dim, key_dim] f32
  TensorView conv_tail;  // [slots, conv_width − 1, channels] f32: raw conv inputs, oldest first
};

namespace ops {

struct CausalConv {
  ConstTensorView x;       // [rows, channels]
  ConstTensorView weight;  // [channels, width] f32
  StateView state;         // conv_tail is read and written
  SeqRows seqs;
  TensorView out;  // [rows, channels]; not x
};

struct GdnGates {
  ConstTensorView a, b;            // [rows, value_heads]
  ConstTensorView a_log, dt_bias;  // [value_heads] f32
  TensorView g, beta;              // [rows, value_heads] f32
};

struct GatedDelta {
  ConstTensorView qkv;        // [rows, channels] after the convolution
  ConstTensorView g, beta;    // [rows, value_heads] f32
  ConstTensorView positions;  // [rows] i32
  StateView state;            // base is read and written
  SeqRows seqs;
  GdnShape shape;
  TensorView out;  // [rows, value_heads · value_dim]
};

struct GatedRmsNorm {
  ConstTensorView x;       // [rows, heads · dim]
  ConstTensorView gate;    // [rows, heads · dim]
  ConstTensorView weight;  // [dim] f32
  TensorView out;          // [rows, heads · dim]; may be x
  float eps = 1e-6f;
};

struct GatedDeltaNet {
  ConstTensorView qkvz;            // [rows, channels + value_heads · value_dim]: u ‖ z
  ConstTensorView ba;              // [rows, 2 · value_heads]: b ‖ a
  ConstTensorView conv;            // [channels, width] f32
  ConstTensorView a_log, dt_bias;  // [value_heads] f32
  ConstTensorView norm;            // [value_dim] f32
  ConstTensorView positions;       // [rows] i32
  StateView state;                 // both parts are read and written
  SeqRows seqs;                    // row_first ascends where row_count > 0
  GdnShape shape;
  TensorView out;  // [rows, value_heads · value_dim]; not qkvz
  float eps = 1e-6f;
};

void validate(const CausalConv&);
void validate(const GdnGates&);
void validate(const GatedDelta&);
void validate(const GatedRmsNorm&);
void validate(const GatedDeltaNet&);
Cost cost(const CausalConv&);
Cost cost(const GdnGates&);
Cost cost(const GatedDelta&);
Cost cost(const GatedRmsNorm&);
Cost cost(const GatedDeltaNet&);
constexpr std::string_view name(const CausalConv&) { return "causal_conv"; }
constexpr std::string_view name(const GdnGates&) { return "gdn_gates"; }
constexpr std::string_view name(const GatedDelta&) { return "gated_delta"; }
constexpr std::string_view name(const GatedRmsNorm&) { return "gated_rms_norm"; }
constexpr std::string_view name(const GatedDeltaNet&) { return "gated_delta_net"; }

}  // namespace ops
}  // namespace exode
