// Gated DeltaNet on CUDA. The recurrence keeps a slice of the state in registers over all tokens of
// the slice: one read and one write of the state per step whatever the number of rows.
#include "ops/cuda/common.cuh"
#include "ops/cuda/gdn_few.h"
#include "ops/gdn_parts.h"

namespace exode::cuda {
namespace {

constexpr int kWarpsPerBlock = 4;
constexpr int kValuesPerWarp = 4;  // state rows a warp holds
constexpr int kKeyLanes = 8;       // keys per lane at most: key_dim ≤ 256
constexpr int kConvWidthMax = 8;

struct Seqs {
  const int32_t *first, *count, *slot, *fresh;
};

Seqs seqs_of(const SeqRows& s) {
  return {ints(s.row_first), ints(s.row_count), ints(s.state_slot), ints(s.fresh)};
}

// A thread walks one channel of one sequence, with the window in registers.
__global__ void causal_conv(ConstRows x, const float* weight, int width, float* tails,
                            int64_t slot_stride, Seqs seqs, Rows out, int channels) {
  const int channel = blockIdx.x * blockDim.x + threadIdx.x, s = blockIdx.y;
  const int rows = seqs.count[s];
  if (channel >= channels || rows == 0) return;
  float* tail = tails + seqs.slot[s] * slot_stride + channel;
  float taps[kConvWidthMax], window[kConvWidthMax];
#pragma unroll
  for (int j = 0; j < kConvWidthMax; ++j) {
    if (j < width) taps[j] = weight[int64_t{channel} * width + j];
    if (j < width - 1) window[j] = seqs.fresh[s] != 0 ? 0.0f : tail[int64_t{j} * channels];
  }
  for (int t = 0; t < rows; ++t) {
    const float newest = x.row(seqs.first[s] + t)[channel];
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kConvWidthMax; ++j) {
      if (j == width - 1) window[j] = newest;
      if (j < width) sum += taps[j] * window[j];
    }
    out.row(seqs.first[s] + t)[channel] = silu(sum);
#pragma unroll
    for (int j = 0; j + 1 < kConvWidthMax; ++j) window[j] = window[j + 1];
  }
#pragma unroll
  for (int j = 0; j < kConvWidthMax; ++j) {
    if (j < width - 1) tail[int64_t{j} * channels] = window[j];
  }
}

__global__ void gdn_gates(ConstRows a, ConstRows b, const float* a_log, const float* dt_bias,
                          Rows g, Rows beta, int heads, int tasks) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= tasks) return;
  const int row = i / heads, h = i % heads;
  const float x = a.row(row)[h] + dt_bias[h];
  const float softplus = x > 20.0f ? x : log1pf(expf(x));
  g.row(row)[h] = -expf(a_log[h]) * softplus;
  beta.row(row)[h] = sigmoid(b.row(row)[h]);
}

struct Delta {
  ConstRows qkv, g, beta;
  float* states;
  int64_t slot_stride;
  Seqs seqs;
  Rows out;
  GdnShape shape;
};

// Lane l of a warp holds keys l, l + 32, … of kValuesPerWarp state rows.
__global__ void gated_delta(Delta p) {
  const int s = blockIdx.z, head = blockIdx.y, lane = threadIdx.x % kWarp;
  const int rows = p.seqs.count[s];
  if (rows == 0) return;
  const int key_dim = p.shape.key_dim, keys = key_dim / kWarp;
  const int value = (blockIdx.x * kWarpsPerBlock + threadIdx.x / kWarp) * kValuesPerWarp;
  if (value >= p.shape.value_dim) return;
  float* base = p.states + p.seqs.slot[s] * p.slot_stride +
                (int64_t{head} * p.shape.value_dim + value) * key_dim + lane;
  float state[kValuesPerWarp][kKeyLanes];
#pragma unroll
  for (int v = 0; v < kValuesPerWarp; ++v) {
#pragma unroll
    for (int j = 0; j < kKeyLanes; ++j) {
      const bool live = j < keys && p.seqs.fresh[s] == 0;
      state[v][j] = live ? base[int64_t{v} * key_dim + j * kWarp] : 0.0f;
    }
  }
  const int key_head = head / (p.shape.value_heads / p.shape.key_heads);
  const float q_scale = rsqrtf(static_cast<float>(key_dim));
  for (int t = p.seqs.first[s]; t < p.seqs.first[s] + rows; ++t) {
    const float* row = p.qkv.row(t);
    const float* q_in = row + key_head * key_dim + lane;
    const float* k_in = q_in + p.shape.key_width();
    float q[kKeyLanes], k[kKeyLanes], q_sum = 0, k_sum = 0;
#pragma unroll
    for (int j = 0; j < kKeyLanes; ++j) {
      q[j] = j < keys ? q_in[j * kWarp] : 0.0f;
      k[j] = j < keys ? k_in[j * kWarp] : 0.0f;
      q_sum += q[j] * q[j];
      k_sum += k[j] * k[j];
    }
    const float q_norm = rsqrtf(warp_sum(q_sum) + 1e-6f) * q_scale;
    const float k_norm = rsqrtf(warp_sum(k_sum) + 1e-6f);
    const float decay = expf(p.g.row(t)[head]), beta = p.beta.row(t)[head];
#pragma unroll
    for (int v = 0; v < kValuesPerWarp; ++v) {
      float predicted = 0;
#pragma unroll
      for (int j = 0; j < kKeyLanes; ++j) {
        state[v][j] *= decay;
        predicted += state[v][j] * k[j];
      }
      const float target = row[2 * p.shape.key_width() + head * p.shape.value_dim + value + v];
      const float delta = beta * (target - warp_sum(predicted) * k_norm) * k_norm;
      float read = 0;
#pragma unroll
      for (int j = 0; j < kKeyLanes; ++j) {
        state[v][j] += delta * k[j];
        read += state[v][j] * q[j];
      }
      read = warp_sum(read) * q_norm;
      if (lane == 0) p.out.row(t)[head * p.shape.value_dim + value + v] = read;
    }
  }
#pragma unroll
  for (int v = 0; v < kValuesPerWarp; ++v) {
#pragma unroll
    for (int j = 0; j < kKeyLanes; ++j) {
      if (j < keys) base[int64_t{v} * key_dim + j * kWarp] = state[v][j];
    }
  }
}

}  // namespace

void launch(Stream& stream, const ops::CausalConv& op, Scratch) {
  EXODE_CHECK(op.weight.cols() <= kConvWidthMax, "convolution wider than 8 is not built");
  constexpr int kThreads = 128;
  const dim3 grid(blocks_for(op.x.cols(), kThreads), static_cast<unsigned>(op.seqs.seqs()));
  causal_conv<<<grid, kThreads, 0, native(stream)>>>(
      rows_of(op.x), op.weight.row<float>(0), op.weight.cols(), op.state.conv_tail.row<float>(0),
      op.state.conv_tail.row_stride, seqs_of(op.seqs), rows_of(op.out), op.x.cols());
  launched();
}

void launch(Stream& stream, const ops::GdnGates& op, Scratch) {
  const int tasks = op.a.rows() * op.a.cols();
  gdn_gates<<<blocks_for(tasks, 128), 128, 0, native(stream)>>>(
      rows_of(op.a), rows_of(op.b), op.a_log.row<float>(0), op.dt_bias.row<float>(0), rows_of(op.g),
      rows_of(op.beta), op.a.cols(), tasks);
  launched();
}

void launch(Stream& stream, const ops::GatedDelta& op, Scratch) {
  const GdnShape& s = op.shape;
  EXODE_CHECK(s.key_dim % kWarp == 0 && s.key_dim <= kKeyLanes * kWarp,
              "gated_delta on cuda needs a key width that is a multiple of 32 and at most 256");
  EXODE_CHECK(s.value_dim % kValuesPerWarp == 0, "gated_delta on cuda: value width");
  const dim3 grid(blocks_for(s.value_dim, kWarpsPerBlock * kValuesPerWarp),
                  static_cast<unsigned>(s.value_heads), static_cast<unsigned>(op.seqs.seqs()));
  gated_delta<<<grid, kWarpsPerBlock * kWarp, 0, native(stream)>>>(
      {rows_of(op.qkv), rows_of(op.g), rows_of(op.beta), op.state.base.row<float>(0),
       op.state.base.row_stride, seqs_of(op.seqs), rows_of(op.out), s});
  launched();
}

size_t scratch_bytes(const DeviceCaps&, const ops::GatedDeltaNet& op) {
  return gdn_fuses(op) ? 0 : ops::GatedDeltaNetMemory(op).bytes();
}

void launch(Stream& stream, const ops::GatedDeltaNet& op, Scratch scratch) {
  if (gdn_fuses(op)) return gdn_few_launch(stream, op, GdnSlices::kAll);
  const ops::GatedDeltaNetParts parts = ops::parts_of(op, scratch.data());
  launch(stream, parts.conv, {});
  launch(stream, parts.gates, {});
  launch(stream, parts.delta, {});
  launch(stream, parts.norm, {});
}

}  // namespace exode::cuda
