// What the fused Gated DeltaNet kernels share. They take heads of 128 keys and 128 values and
// convolutions of width 4: the shape of every published checkpoint.
#pragma once

#include "ops/cuda/launch.cuh"
#include "ops/gdn.h"

namespace exode::cuda {

constexpr int kGdnDim = 128;    // keys and values of a head
constexpr int kGdnWidth = 4;    // taps of the convolution
constexpr int kGdnFewRows = 8;  // slices up to here are the recurrence's in every step
constexpr int kGdnTail = kGdnWidth - 1;

struct GdnSeqs {
  const int32_t *first, *count, *slot, *fresh;
  int seqs;
};

struct GdnArgs {
  ConstRows qkvz, ba;
  const float *conv, *a_log, *dt_bias, *norm;
  float *states, *tails;  // of slot 0
  int64_t state_stride, tail_stride;
  const int32_t* positions;
  GdnSeqs seqs;
  Rows out;
  GdnShape shape;
  float eps;

  __device__ int group() const { return shape.value_heads / shape.key_heads; }
  __device__ int q_channel(int key_head) const { return key_head * kGdnDim; }
  __device__ int k_channel(int key_head) const { return shape.key_width() + key_head * kGdnDim; }
  __device__ int v_channel(int head) const { return 2 * shape.key_width() + head * kGdnDim; }
  __device__ int z_channel(int head) const { return shape.conv_channels() + head * kGdnDim; }
  __device__ float* state(int s, int head) const {
    return states + seqs.slot[s] * state_stride + int64_t{head} * kGdnDim * kGdnDim;
  }
  // Entry i of the tail: the input of row i − kGdnTail of the slice.
  __device__ float* tail(int s, int i, int channel) const {
    return tails + seqs.slot[s] * tail_stride + int64_t{i} * shape.conv_channels() + channel;
  }
  // Where the convolution's input of a row of the slice is, −kGdnTail at least; null: it is 0.
  __device__ const float* input(int s, int row, int channel) const {
    if (row >= 0) return qkvz.row(seqs.first[s] + row) + channel;
    return seqs.fresh[s] != 0 ? nullptr : tail(s, row + kGdnTail, channel);
  }
};

__device__ inline float4 load4(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ inline void store4(float* p, float4 v) { *reinterpret_cast<float4*>(p) = v; }
__device__ inline float4 load4_or_zero(const float* p) {
  return p == nullptr ? make_float4(0, 0, 0, 0) : load4(p);
}
__device__ inline float dot4(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// log of the decay.
__device__ inline float gdn_log_decay(float input, float a_log, float dt_bias) {
  const float x = input + dt_bias;
  const float softplus = x > 20.0f ? x : log1pf(expf(x));
  return -expf(a_log) * softplus;
}

// Plans know strides (gdn_fuses) but no addresses.
inline void gdn_require_quads(const ops::GatedDeltaNet& op) {
  for (const ConstTensorView& t :
       {op.qkvz, op.conv, ConstTensorView(op.out), ConstTensorView(op.state.base),
        ConstTensorView(op.state.conv_tail)}) {
    EXODE_CHECK(reinterpret_cast<uintptr_t>(t.data) % 16 == 0,
                "gated_delta_net on cuda needs operands that start at multiples of 16 bytes");
  }
}

inline GdnArgs gdn_args(const ops::GatedDeltaNet& op) {
  return {.qkvz = rows_of(op.qkvz),
          .ba = rows_of(op.ba),
          .conv = op.conv.row<float>(0),
          .a_log = op.a_log.row<float>(0),
          .dt_bias = op.dt_bias.row<float>(0),
          .norm = op.norm.row<float>(0),
          .states = op.state.base.row<float>(0),
          .tails = op.state.conv_tail.row<float>(0),
          .state_stride = op.state.base.row_stride,
          .tail_stride = op.state.conv_tail.row_stride,
          .positions = ints(op.positions),
          .seqs = {ints(op.seqs.row_first), ints(op.seqs.row_count), ints(op.seqs.state_slot),
                   ints(op.seqs.fresh), op.seqs.seqs()},
          .out = rows_of(op.out),
          .shape = op.shape,
          .eps = op.eps};
}

}  // namespace exode::cuda
