// Experts for up to 32 rows: two kernels that stream the chosen weights once.
//
//   few_gate_up  a CTA per (strip of 16 inner outputs, slot). Slots are the (row, choice) pairs and
//                the shared expert; the first pair of an expert works for all pairs of it, the CTAs
//                of the others end at once, so that the grid depends on shapes only. The warps of a
//                CTA split K; their sums are added in warp order.
//   few_down     a CTA per strip of 16 hidden outputs. Each warp takes whole experts; the results
//                of all pairs meet in shared memory and are added per row in the order of choices.
//
// Neither the split of K nor the order of sums depends on the rows, so a row has the same bits
// whatever the others are.
#include <algorithm>

#include "ops/cuda/moe_args.cuh"

namespace exode::cuda::moe {
namespace {

constexpr int kRowsMax = 32;
constexpr int kUpWarps = 4;
constexpr int kDownWarps = 16;
constexpr int kPairsMax = 512;  // with the shared expert: shared memory of few_down
constexpr int kExpertsMax = 1024;
constexpr uint32_t kOnes = 0x3c003c00u;  // two halves

// The lines of two weight rows (g and g + 8 of a strip) of one block.
template <class Codec>
struct StripBlock {
  typename Codec::Lines low, high;
  float scale[2];
  __device__ void load(const Matrix& w, int64_t strip, int block) {
    const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
    low = Codec::line(w, strip + g, block, t);
    high = Codec::line(w, strip + g + 8, block, t);
    if constexpr (Codec::kScaled) {
      scale[0] = Codec::scale(w, strip + g, block);
      scale[1] = Codec::scale(w, strip + g + 8, block);
    }
  }
};

// c += (8 − zero) Σ x for both rows of the lane.
template <class Codec>
__device__ void add_shifts(const Matrix& w, int64_t strip, int block, const uint32_t (&b)[16],
                           float (&c)[4]) {
  const int g = threadIdx.x % kWarp / 4;
  float sum[4] = {};
#pragma unroll
  for (int m = 0; m < kBlockMmas; ++m) {
    mma(sum, {kOnes, kOnes, kOnes, kOnes}, b[2 * m], b[2 * m + 1]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) c[i] += Codec::shift(w, strip + g + i / 2 * 8, block) * sum[i];
}

// total += scale · (codes + shift) x of one block: code sums come unscaled from the MMAs.
template <class Codec>
__device__ void add_block(const Matrix& w, int64_t strip, int block, const StripBlock<Codec>& lines,
                          const uint32_t (&b)[16], float (&total)[4]) {
  float c[4] = {};
#pragma unroll
  for (int m = 0; m < kBlockMmas; ++m) {
    mma(c, Codec::operand(lines.low, lines.high, m), b[2 * m], b[2 * m + 1]);
  }
  if (Codec::kHasZeros && w.zeros != nullptr) add_shifts<Codec>(w, strip, block, b, c);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    total[i] += Codec::kScaled ? lines.scale[i / 2] * Codec::kUnit * c[i] : c[i];
  }
}

// The pairs of one expert, in order; for the shared expert every row is a pair of its own, counted
// on from the others.
struct Members {
  int pair[kRowsMax];
  int row[kRowsMax];
  int count;
};

// Called by one warp.
__device__ void find_members(const Args& a, const int32_t* ids, int expert, Members& members) {
  const int lane = threadIdx.x % kWarp;
  int count = 0;
  if (expert == a.experts) {
    if (lane < a.rows) {
      members.pair[lane] = a.pairs() + lane;
      members.row[lane] = lane;
    }
    count = a.rows;
  } else {
    for (int base = 0; base < a.pairs(); base += kWarp) {
      const int pair = base + lane;
      const bool is_member = pair < a.pairs() && ids[pair] == expert;
      const unsigned mask = __ballot_sync(kAll, is_member);
      const int at = count + __popc(mask & ((1u << lane) - 1));
      if (is_member && at < kRowsMax) {
        members.pair[at] = pair;
        members.row[at] = pair / a.top_k;
      }
      count += __popc(mask);
    }
  }
  if (lane == 0) members.count = min(count, kRowsMax);
  __syncwarp();
}

template <class Codec>
constexpr int kBatch = Codec::kLoads == 1 ? 2 : 1;  // blocks whose loads are issued together

// Sums of a strip of gates and a strip of ups over this warp's blocks.
template <int TILES>
using UpTotals = float[TILES][2][4];

template <class Codec>
__device__ void load_batch(const Matrix& w, const int64_t (&strip)[2], int block,
                           StripBlock<Codec> (&lines)[kBatch<Codec>][2]) {
#pragma unroll
  for (int i = 0; i < kBatch<Codec>; ++i) {
    const int at = block + i * kUpWarps;
    if (at >= w.blocks) continue;
    lines[i][0].load(w, strip[0], at);
    lines[i][1].load(w, strip[1], at);
  }
}

template <class Codec, int TILES>
__device__ void add_batch(const Args& a, const Matrix& w, const int64_t (&strip)[2], int block,
                          const Members& members,
                          const StripBlock<Codec> (&lines)[kBatch<Codec>][2],
                          UpTotals<TILES>& total) {
  const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < kBatch<Codec>; ++i) {
    const int at = block + i * kUpWarps;
    if (at >= w.blocks) continue;
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      const int member = n * kRowTile + g;
      if (n * kRowTile >= members.count) continue;
      const float* x = nullptr;
      if (member < members.count) x = a.x.row(members.row[member]);
      uint32_t b[16];
      load_inputs<Codec>(x, at, w.cols, t, b);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        add_block<Codec>(w, strip[s], at, lines[i][s], b, total[n][s]);
      }
    }
  }
}

// Adds the warps' sums in warp order and writes silu(gate) · up. Element i of an MMA's C: output
// g + 8 (i / 2), row 2 t + i % 2 of the tile.
template <int TILES>
__device__ void write_act(const Members& members, const float (*sums)[TILES * 8 * kWarp], int strip,
                          float* act, int act_stride) {
  for (int e = threadIdx.x; e < TILES * 4 * kWarp; e += kUpWarps * kWarp) {
    const int lane = e % kWarp, i = e / kWarp % 4, n = e / kWarp / 4;
    const int member = n * kRowTile + lane % 4 * 2 + i % 2;
    if (member >= members.count) continue;
    float gate = 0, up = 0;
#pragma unroll
    for (int w = 0; w < kUpWarps; ++w) {
      gate += sums[w][(n * 8 + i) * kWarp + lane];
      up += sums[w][(n * 8 + 4 + i) * kWarp + lane];
    }
    act[int64_t{members.pair[member]} * act_stride + strip + lane / 4 + i / 2 * 8] =
        silu(gate) * up;
  }
}

template <int TILES>
struct UpShared {
  Members members;
  float sums[kUpWarps][TILES * 8 * kWarp];
};

// One expert's strip. The shared expert's weights are known before the inputs are there.
template <class Codec, int TILES>
__device__ void gate_up_strip(const Args& a, const Matrix& w, int expert, int inner, float* act,
                              int act_stride, UpShared<TILES>& shared) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const bool is_shared = expert == a.experts;
  const int64_t gate = (is_shared ? 0 : int64_t{expert} * 2 * inner) + int64_t{blockIdx.x} * kStrip;
  const int64_t strip[2] = {gate, gate + inner};
  StripBlock<Codec> lines[kBatch<Codec>][2];
  load_batch<Codec>(w, strip, warp, lines);
  if (is_shared) {
    wait_for_earlier();
    start_next();
  }
  if (warp == 0) find_members(a, a.ids, expert, shared.members);
  __syncthreads();
  UpTotals<TILES> total = {};
  for (int block = warp; block < w.blocks; block += kUpWarps * kBatch<Codec>) {
    if (block != warp) load_batch<Codec>(w, strip, block, lines);
    add_batch<Codec, TILES>(a, w, strip, block, shared.members, lines, total);
  }
#pragma unroll
  for (int i = 0; i < TILES * 8; ++i) {
    shared.sums[warp][i * kWarp + lane] = (&total[0][0][0])[i];
  }
  __syncthreads();
  write_act<TILES>(shared.members, shared.sums, blockIdx.x * kStrip, act, act_stride);
}

// The next kernel may start once every CTA has waited: then ids are final, and it reads them before
// it waits itself.
template <class Codec, class SharedCodec, int TILES>
__global__ void __launch_bounds__(kUpWarps* kWarp, TILES == 1 ? 4 : 3)
    few_gate_up(Args a, float* act, int act_stride) {
  __shared__ UpShared<TILES> shared;
  const int pair = static_cast<int>(blockIdx.y) - (a.has_shared() ? 1 : 0);
  const int strip = blockIdx.x * kStrip;
  if (pair < 0) {
    if (strip < a.shared_inner) {
      gate_up_strip<SharedCodec, TILES>(a, a.shared_gate_up, a.experts, a.shared_inner, act,
                                        act_stride, shared);
      return;
    }
  }
  wait_for_earlier();
  start_next();
  if (pair < 0 || strip >= a.inner) return;
  const int expert = a.ids[pair];
  bool has_leader = false;  // an earlier pair of the same expert
  for (int p = threadIdx.x; p < pair; p += kUpWarps * kWarp) has_leader |= a.ids[p] == expert;
  if (__syncthreads_or(has_leader)) return;
  gate_up_strip<Codec, TILES>(a, a.gate_up, expert, a.inner, act, act_stride, shared);
}

struct DownShared {
  int first[kExpertsMax];  // first pair of each expert
  int32_t ids[kPairsMax];
  int leader[kPairsMax];  // distinct experts
  int leaders;
  Members members[kDownWarps];
};

// Distinct experts, in the order of their first pairs.
__device__ void find_leaders(const Args& a, DownShared& shared) {
  const int lane = threadIdx.x % kWarp;
  for (int e = threadIdx.x; e < a.experts; e += blockDim.x) shared.first[e] = kPairsMax;
  __syncthreads();
  for (int p = threadIdx.x; p < a.pairs(); p += blockDim.x) {
    const int32_t id = a.ids[p];
    shared.ids[p] = id;
    atomicMin(&shared.first[id], p);
  }
  __syncthreads();
  if (threadIdx.x < kWarp) {
    int count = 0;
    if (a.has_shared()) {
      if (lane == 0) shared.leader[0] = a.experts;
      count = 1;
    }
    for (int base = 0; base < a.pairs(); base += kWarp) {
      const int pair = base + lane;
      const bool leads = pair < a.pairs() && shared.first[shared.ids[pair]] == pair;
      const unsigned mask = __ballot_sync(kAll, leads);
      if (leads) shared.leader[count + __popc(mask & ((1u << lane) - 1))] = shared.ids[pair];
      count += __popc(mask);
    }
    if (lane == 0) shared.leaders = count;
  }
  __syncthreads();
}

template <class Codec>
constexpr int kDownBatch = Codec::kLoads == 1 ? 4 : 1;

template <class Codec>
__device__ void load_down(const Matrix& w, int64_t strip, int block,
                          StripBlock<Codec> (&lines)[kDownBatch<Codec>]) {
#pragma unroll
  for (int i = 0; i < kDownBatch<Codec>; ++i) {
    if (block + i < w.blocks) lines[i].load(w, strip, block + i);
  }
}

// One expert's strip for all its pairs, by one warp; results go to `results` [pairs][kStrip].
// `first` holds the lines of the first blocks.
template <class Codec, int TILES>
__device__ void down_strip(const Matrix& w, int64_t strip, const Members& members, const float* act,
                           int act_stride, StripBlock<Codec> (&lines)[kDownBatch<Codec>],
                           float* results) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  float total[TILES][4] = {};
  for (int block = 0; block < w.blocks; block += kDownBatch<Codec>) {
    if (block > 0) load_down<Codec>(w, strip, block, lines);
#pragma unroll
    for (int i = 0; i < kDownBatch<Codec>; ++i) {
      if (block + i >= w.blocks) continue;
#pragma unroll
      for (int n = 0; n < TILES; ++n) {
        if (n * kRowTile >= members.count) continue;
        const int member = n * kRowTile + g;
        const float* x = nullptr;
        if (member < members.count) x = act + int64_t{members.pair[member]} * act_stride;
        uint32_t b[16];
        load_inputs<Codec>(x, block + i, w.cols, t, b);
        add_block<Codec>(w, strip, block + i, lines[i], b, total[n]);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int member = n * kRowTile + t * 2 + i % 2;
      if (member < members.count) {
        results[members.pair[member] * kStrip + g + i / 2 * 8] = total[n][i];
      }
    }
  }
}

// A warp's experts are leaders warp, warp + kDownWarps, … The lines of the first are loaded before
// the activations are there.
template <class Codec, int TILES>
__device__ void down_expert(const Args& a, const Matrix& w, int expert, bool must_wait,
                            const float* act, int act_stride, DownShared& shared, float* results) {
  const int64_t strip =
      (expert == a.experts ? 0 : int64_t{expert} * a.hidden) + int64_t{blockIdx.x} * kStrip;
  StripBlock<Codec> lines[kDownBatch<Codec>];
  load_down<Codec>(w, strip, 0, lines);
  Members& members = shared.members[threadIdx.x / kWarp];
  find_members(a, shared.ids, expert, members);
  if (must_wait) wait_for_earlier();
  down_strip<Codec, TILES>(w, strip, members, act, act_stride, lines, results);
  __syncwarp();
}

template <class Codec, class SharedCodec, int TILES>
__global__ void __launch_bounds__(kDownWarps* kWarp, 1)
    few_down(Args a, const float* act, int act_stride) {
  start_next();
  __shared__ DownShared shared;
  extern __shared__ float results[];  // [pairs and shared pairs][kStrip]
  find_leaders(a, shared);
  const int warp = threadIdx.x / kWarp;
  for (int i = warp; i < shared.leaders; i += kDownWarps) {
    const int expert = shared.leader[i];
    if (expert == a.experts) {
      down_expert<SharedCodec, TILES>(a, a.shared_down, expert, i == warp, act, act_stride, shared,
                                      results);
    } else {
      down_expert<Codec, TILES>(a, a.down, expert, i == warp, act, act_stride, shared, results);
    }
  }
  wait_for_earlier();
  __syncthreads();
  for (int i = threadIdx.x; i < a.rows * kStrip; i += kDownWarps * kWarp) {
    const int row = i / kStrip, r = i % kStrip;
    float sum = 0;
    for (int j = 0; j < a.top_k; ++j) {
      const int pair = row * a.top_k + j;
      sum += a.weights[pair] * results[pair * kStrip + r];
    }
    if (a.has_shared()) {
      sum += sigmoid(a.gate.row(row)[0]) * results[(a.pairs() + row) * kStrip + r];
    }
    a.out.row(row)[blockIdx.x * kStrip + r] = sum;
  }
}

int slots_of(const Args& a) { return a.pairs() + (a.has_shared() ? a.rows : 0); }
int act_stride_of(const Args& a) { return std::max(a.inner, a.shared_inner); }

template <class Codec, class SharedCodec, int TILES>
void run(cudaStream_t stream, const Args& a, float* act) {
  const int stride = act_stride_of(a);
  const dim3 grid(static_cast<unsigned>(stride / kStrip),
                  static_cast<unsigned>(a.pairs() + (a.has_shared() ? 1 : 0)));
  launch_chained(stream, few_gate_up<Codec, SharedCodec, TILES>, grid, kUpWarps * kWarp, 0, a, act,
                 stride);
  const size_t results = static_cast<size_t>(slots_of(a)) * kStrip * sizeof(float);
  launch_chained(stream, few_down<Codec, SharedCodec, TILES>,
                 static_cast<unsigned>(a.hidden / kStrip), kDownWarps * kWarp, results, a, act,
                 stride);
}

}  // namespace

bool few_rows_apply(const ops::MoeExperts& op) {
  const int rows = op.x.rows();
  return rows <= kRowsMax && op.experts <= kExpertsMax && rows * (op.ids.cols() + 1) <= kPairsMax;
}

size_t few_rows_scratch_bytes(const ops::MoeExperts& op) {
  const Args a = args_of(op);
  return static_cast<size_t>(slots_of(a)) * static_cast<size_t>(act_stride_of(a)) * sizeof(float);
}

void few_rows_launch(Stream& stream, const ops::MoeExperts& op, Scratch scratch) {
  const Args a = args_of(op);
  auto* act = reinterpret_cast<float*>(scratch.data());
  with_codecs(op, [&](auto codec, auto shared) {
    using Codec = decltype(codec);
    using SharedCodec = decltype(shared);
    if (a.rows <= kRowTile) return run<Codec, SharedCodec, 1>(native(stream), a, act);
    run<Codec, SharedCodec, kRowsMax / kRowTile>(native(stream), a, act);
  });
}

}  // namespace exode::cuda::moe
