// Mixture of experts: a warp per output of each (row, expert) pair; rows never see each other.
#include "ops/cuda/weights.cuh"

namespace exode::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kTopKMax = 64;

// One warp per row: top_k rounds of arg-max, ties to the lower id.
__global__ void moe_route(ConstRows logits, int32_t* ids, float* weights, int experts, int top_k,
                          bool normalize, int rows) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp, lane = threadIdx.x % kWarp;
  if (row >= rows) return;
  const float* in = logits.row(row);
  int32_t* chosen = ids + int64_t{row} * top_k;
  float* out = weights + int64_t{row} * top_k;
  float last = INFINITY, peak = 0;
  int last_id = -1;
  for (int j = 0; j < top_k; ++j) {
    float best = -INFINITY;
    int best_id = experts;
    for (int e = lane; e < experts; e += kWarp) {
      const bool taken = in[e] > last || (in[e] == last && e <= last_id);
      if (!taken && (in[e] > best || best_id == experts)) {
        best = in[e];
        best_id = e;
      }
    }
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(kAll, best, offset);
      const int other_id = __shfl_xor_sync(kAll, best_id, offset);
      if (other > best || (other == best && other_id < best_id)) {
        best = other;
        best_id = other_id;
      }
    }
    last = best;
    last_id = best_id;
    if (j == 0) peak = best;
    if (lane == 0) {
      chosen[j] = best_id;
      out[j] = expf(best - peak);
    }
  }
  __syncwarp();
  float sum = 0;
  if (normalize) {
    for (int j = 0; j < top_k; ++j) sum += out[j];
  } else {
    for (int e = lane; e < experts; e += kWarp) sum += expf(in[e] - peak);
    sum = warp_sum(sum);
  }
  __syncwarp();
  for (int j = lane; j < top_k; j += kWarp) out[j] /= sum;
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

size_t scratch_bytes(const DeviceCaps&, const ops::MoeExperts& op) {
  return sizeof(float) * static_cast<size_t>(op.x.rows()) * static_cast<size_t>(op.ids.cols()) *
         static_cast<size_t>(op.down.cols);
}

void launch(Stream& stream, const ops::MoeRoute& op, Scratch) {
  EXODE_CHECK(op.ids.cols() <= kTopKMax, "more than 64 experts per token are not built");
  const int rows = op.logits.rows();
  moe_route<<<blocks_for(int64_t{rows} * kWarp, 128), 128, 0, native(stream)>>>(
      rows_of(op.logits), op.ids.row<int32_t>(0), op.weights.row<float>(0), op.logits.cols(),
      op.ids.cols(), op.normalize, rows);
  launched();
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
}

}  // namespace exode::cuda
