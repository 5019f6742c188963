// Routing, and exact experts: a warp per output of each (row, expert) pair.
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/weights.cuh"
#include "ops/shared_expert.h"

namespace exode::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kRouteThreads = 128;

// Logits as integers in the same order, above 0; NaN is the smallest.
__device__ inline unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x);
  if (isnan(x)) return 1;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float unordered(unsigned key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// One warp per row, VALUES logits per lane: top_k rounds of arg-max, ties to the lower id.
template <int VALUES>
__global__ void __launch_bounds__(kRouteThreads)
    moe_route(ConstRows logits, int32_t* ids, float* weights, int experts, int top_k,
              bool normalize, int rows) {
  start_next();
  const int row = (blockIdx.x * kRouteThreads + threadIdx.x) / kWarp, lane = threadIdx.x % kWarp;
  wait_for_earlier();
  if (row >= rows) return;
  const float* in = logits.row(row);
  int32_t* chosen = ids + int64_t{row} * top_k;
  float* out = weights + int64_t{row} * top_k;
  unsigned key[VALUES];  // 0: taken, or no expert
#pragma unroll
  for (int i = 0; i < VALUES; ++i) {
    const int e = i * kWarp + lane;
    key[i] = e < experts ? ordered(in[e]) : 0;
  }
  float peak = 0, sum = 0, rest = 0;
  for (int j = 0; j < top_k; ++j) {
    unsigned best = 0;
#pragma unroll
    for (int i = 0; i < VALUES; ++i) best = max(best, key[i]);
    const unsigned most = __reduce_max_sync(kAll, best);
    unsigned id = ~0u;
#pragma unroll
    for (int i = VALUES - 1; i >= 0; --i) {
      if (key[i] == most) id = i * kWarp + lane;
    }
    id = __reduce_min_sync(kAll, id);
#pragma unroll
    for (int i = 0; i < VALUES; ++i) {
      if (i * kWarp + lane == id) key[i] = 0;
    }
    const float value = unordered(most);
    if (j == 0) peak = value;
    const float mass = expf(value - peak);
    sum += mass;
    if (lane == 0) {
      chosen[j] = static_cast<int32_t>(id);
      out[j] = mass;
    }
  }
  if (!normalize) {
    for (int e = lane; e < experts; e += kWarp) rest += expf(in[e] - peak);
    sum = warp_sum(rest);
  }
  __syncwarp();
  for (int j = lane; j < top_k; j += kWarp) out[j] /= sum;
}

template <int VALUES>
void run_route(Stream& stream, const ops::MoeRoute& op) {
  launch_chained(native(stream), moe_route<VALUES>,
                 blocks_for(int64_t{op.logits.rows()} * kWarp, kRouteThreads), kRouteThreads, 0,
                 rows_of(op.logits), op.ids.row<int32_t>(0), op.weights.row<float>(0),
                 op.logits.cols(), op.ids.cols(), op.normalize, op.logits.rows());
}

// act[pair, i] = silu(gate_i x) · up_i x
template <class Weight>
__global__ void expert_gate_up(Weight w, ConstRows x, const int32_t* ids, int top_k, float* act,
                               int inner) {
  const int i = blockIdx.x * kWarps + threadIdx.x / kWarp, pair = blockIdx.y;
  if (i >= inner) return;
  const int64_t first = int64_t{ids[pair]} * 2 * inner;
  float gate[1], up[1];
  warp_dot<Weight, 1>(w, first + i, x, pair / top_k, gate);
  warp_dot<Weight, 1>(w, first + inner + i, x, pair / top_k, up);
  if (threadIdx.x % kWarp == 0) act[int64_t{pair} * inner + i] = silu(gate[0]) * up[0];
}

// out[row, n] = Σ_j weights[row, j] · down_j act_j, in the order of j.
template <class Weight>
__global__ void expert_down(Weight w, const float* act, const int32_t* ids, const float* weights,
                            int top_k, int inner, Rows out, int hidden) {
  const int n = blockIdx.x * kWarps + threadIdx.x / kWarp, row = blockIdx.y;
  if (n >= hidden) return;
  float total = 0;
  for (int j = 0; j < top_k; ++j) {
    const int64_t pair = int64_t{row} * top_k + j;
    float sum[1];
    warp_dot<Weight, 1>(w, int64_t{ids[pair]} * hidden + n, {act, inner}, pair, sum);
    total += weights[pair] * sum[0];
  }
  if (threadIdx.x % kWarp == 0) out.row(row)[n] = total;
}

}  // namespace

size_t scratch_bytes(const DeviceCaps& caps, const ops::MoeExperts& op) {
  size_t bytes = sizeof(float) * static_cast<size_t>(op.x.rows()) *
                 static_cast<size_t>(op.ids.cols()) * static_cast<size_t>(op.down.cols);
  if (op.shared.empty()) return bytes;
  // The shared expert runs after the others and takes their place.
  const ops::SharedExpertOps shared = ops::shared_expert_ops(op, nullptr);
  return std::max(bytes, ops::shared_expert_bytes(op) + scratch_bytes(caps, shared.gate_up));
}

void launch(Stream& stream, const ops::MoeRoute& op, Scratch) {
  const int experts = op.logits.cols();
  if (experts <= 8 * kWarp) return run_route<8>(stream, op);
  EXODE_CHECK(experts <= 64 * kWarp, "more than 2048 experts are not built");
  run_route<64>(stream, op);
}

void launch(Stream& stream, const ops::MoeExperts& op, Scratch scratch) {
  auto* act = reinterpret_cast<float*>(scratch.data());
  const int rows = op.x.rows(), top_k = op.ids.cols(), inner = op.down.cols, hidden = op.x.cols();
  const int32_t* ids = ints(op.ids);
  with_weight(op.gate_up, [&](const auto& w) {
    const dim3 grid(blocks_for(inner, kWarps), static_cast<unsigned>(rows * top_k));
    expert_gate_up<<<grid, kWarps * kWarp, 0, native(stream)>>>(w, rows_of(op.x), ids, top_k, act,
                                                                inner);
    launched();
  });
  with_weight(op.down, [&](const auto& w) {
    const dim3 grid(blocks_for(hidden, kWarps), static_cast<unsigned>(rows));
    expert_down<<<grid, kWarps * kWarp, 0, native(stream)>>>(w, act, ids, op.weights.row<float>(0),
                                                             top_k, inner, rows_of(op.out), hidden);
    launched();
  });
  if (op.shared.empty()) return;
  const ops::SharedExpertOps shared = ops::shared_expert_ops(op, scratch.data());
  launch(stream, shared.gate_up, scratch.subspan(ops::shared_expert_bytes(op)));
  launch(stream, shared.down, {});
  launch(stream, shared.add, {});
}

}  // namespace exode::cuda
