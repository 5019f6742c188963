// Attention of sequences that bring up to kFewRows rows, split over their tokens.
//
//   CTA = (split of the tokens, KV head and up to 64 of its queries, sequence)
//     S^T [64 tokens, queries] = K Q^T      warp w: tokens 16 w … 16 w + 15
//     O^T [head_dim, queries] += V^T P^T    warp w: a quarter of each chunk of dimensions
//   K and V pass through a ring of [64 tokens, kChunk] tiles, four to six of them. Tokens are the
//   rows of the MMA, so eight queries cost one and nothing is padded.
//   combine: one CTA per (row, query head) adds the splits up and applies the gate.
//
// Splits have fixed bounds (split_begin), so a row's sums do not depend on its company, and a row
// masked out of a tile passes it without a change of a bit. Must move: K and V once, and for each
// query and split head_dim + 2 floats, twice.
#pragma once

#include <algorithm>

#include "kv/cuda/attend.cuh"

namespace exode::kv_cuda {

// Short contexts are cut finely for latency, long ones coarsely so that joining stays cheap.
constexpr int kFineSplit = 128, kMiddleSplit = 512, kCoarseSplit = 2048;
constexpr int kFineEnd = 4096, kMiddleEnd = 32768;  // tokens
constexpr int kFineSplits = kFineEnd / kFineSplit;
constexpr int kMiddleSplits = (kMiddleEnd - kFineEnd) / kMiddleSplit;

__host__ __device__ constexpr int split_begin(int split) {
  if (split < kFineSplits) return split * kFineSplit;
  const int middle = split - kFineSplits;
  if (middle < kMiddleSplits) return kFineEnd + middle * kMiddleSplit;
  return kMiddleEnd + (middle - kMiddleSplits) * kCoarseSplit;
}
__host__ __device__ constexpr int split_of(int token) {
  if (token < kFineEnd) return token / kFineSplit;
  if (token < kMiddleEnd) return kFineSplits + (token - kFineEnd) / kMiddleSplit;
  return kFineSplits + kMiddleSplits + (token - kMiddleEnd) / kCoarseSplit;
}

struct FewArgs {
  Args p;
  int first_run;       // runs of this launch start here
  int rows_max;        // of a run
  int splits;          // that the block table has room for
  float* partial;      // [runs, rows_max, q_heads, splits, head_dim], not divided by the total
  float2* peak_total;  // [runs, rows_max, q_heads, splits]
  int ring;            // tiles in the ring
  __device__ int64_t at(int run, int row, int head, int split) const {
    return ((int64_t{run} * rows_max + row) * p.q_heads + head) * splits + split;
  }
};

template <int kDim, int kTiles>  // kTiles: of eight queries
struct FewShape {
  static constexpr int kChunk = kDim < 128 ? kDim : 128;
  static constexpr int kChunks = kDim / kChunk;
  static constexpr int kRowBytes = kChunk * 2;
  static constexpr int kTileBytes = kKvBlock * kRowBytes;
  static constexpr int kQueries = kTiles * 8;
  static constexpr int kPRowBytes = (kTiles | 1) * 16;  // odd: ldmatrix without conflicts
  static constexpr int kStrips = kChunk / kWarps / 16;  // of 16 dimensions, of a warp in a chunk
  static constexpr int kQBytes = kQueries * kDim * 2;
  static constexpr int kPBytes = kKvBlock * kPRowBytes;
  static constexpr int kReduceBytes = kWarps * kQueries * 4;
  static constexpr int kFixedBytes = kQBytes + kPBytes + kReduceBytes + kQueries * 8;
};

// Ring of K and V chunks in the order in which they are used: K chunks of a block, V chunks.
template <class Format, int kDim, class Shape>
struct Ring {
  const Cache& cache;
  int sequence, kv_head, first_block, end, steps, size;
  uint32_t base;

  __device__ uint32_t tile(int step) const { return base + step % size * Shape::kTileBytes; }
  __device__ void start(int step) const {
    if (step < steps) {
      const int per_block = 2 * Shape::kChunks, index = step % per_block;
      const int block = first_block + step / per_block;
      Format::template load_tile<Shape::kChunk, kThreads>(
          cache, index < Shape::kChunks ? Part::kKey : Part::kValue,
          cache.block(sequence, block * kKvBlock), kv_head, index % Shape::kChunks * Shape::kChunk,
          end - block * kKvBlock, tile(step));
    }
    commit_copies();
  }
  __device__ void fill() const {
    for (int step = 0; step + 1 < size; ++step) start(step);
  }
  // After this every thread sees the tile of `step`, and the one before it is free.
  __device__ uint32_t next(int step) const {
    wait_copies(size - 2);
    __syncthreads();
    start(step + size - 1);
    return tile(step);
  }
};

// c[n] += K[16 tokens of the warp, chunk] · Q[8 n …, chunk]^T
template <class T, int kDim, int kTiles>
__device__ void multiply_keys(uint32_t k, uint32_t q, int chunk, int live, float (&c)[kTiles][4]) {
  using S = FewShape<kDim, kTiles>;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int token = warp * 16 + lane % 16, half = lane / 16;
#pragma unroll
  for (int d = 0; d < S::kChunk / 32; ++d) {
    uint32_t low[4], high[4];
    load_matrices(low, k + swizzled(token, d * 4 + half, S::kRowBytes));
    load_matrices(high, k + swizzled(token, d * 4 + 2 + half, S::kRowBytes));
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      if (n >= live) break;
      uint32_t b[4];
      const int segment = chunk * (S::kChunk / kSegment) + d * 4 + lane / 8;
      load_matrices(b, q + swizzled(n * 8 + lane % 8, segment, kDim * 2));
      mma(c[n], low, b[0], b[1], T{});
      mma(c[n], high, b[2], b[3], T{});
    }
  }
}

// out[strip][n] += V[64 tokens, 16 dimensions of the strip]^T · P[64 tokens, 8 n …]
template <class T, int kDim, int kTiles>
__device__ void multiply_values(uint32_t v, uint32_t weights, int live, float (*out)[kTiles][4]) {
  using S = FewShape<kDim, kTiles>;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int tokens = 0; tokens < kKvBlock; tokens += 32) {
    uint32_t a[2][S::kStrips][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int strip = 0; strip < S::kStrips; ++strip) {
        const int token = tokens + half * 16 + lane / 16 * 8 + lane % 8;
        const int segment = (warp * S::kStrips + strip) * 2 + lane / 8 % 2;
        load_matrices_transposed(a[half][strip], v + swizzled(token, segment, S::kRowBytes));
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      if (n >= live) break;
      uint32_t b[4];
      load_matrices_transposed(b, weights + (tokens + lane) * S::kPRowBytes + n * 16);
#pragma unroll
      for (int strip = 0; strip < S::kStrips; ++strip) {
        mma(out[strip][n], a[0][strip], b[0], b[1], T{});
        mma(out[strip][n], a[1][strip], b[2], b[3], T{});
      }
    }
  }
}

// Running softmax of the queries a thread holds: 8 n + 2 t and the next. Peaks are those of all
// warps, totals this thread's share.
template <int kTiles>
struct Running {
  float peak[kTiles][2], total[kTiles][2];
};

// Scores to weights in place and in shared memory; returns with `correction` of what came before.
template <class T, int kDim, int kTiles>
__device__ void softmax_tile(const Args& p, const int2* spans, int first_token, int live,
                             float (&c)[kTiles][4], Running<kTiles>& running,
                             float (&correction)[kTiles][2], float* reduce, std::byte* weights) {
  using S = FewShape<kDim, kTiles>;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
  const int token = first_token + warp * 16 + g;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    if (n >= live) break;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int2 span = spans[n * 8 + 2 * t + i];
      const bool low = token >= span.x && token <= span.y;
      const bool high = token + 8 >= span.x && token + 8 <= span.y;
      c[n][i] = low ? p.score(c[n][i]) : -INFINITY;
      c[n][i + 2] = high ? p.score(c[n][i + 2]) : -INFINITY;
      float most = fmaxf(c[n][i], c[n][i + 2]);
      for (int offset = 4; offset < kWarp; offset *= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAll, most, offset));
      }
      if (g == 0) reduce[warp * S::kQueries + n * 8 + 2 * t + i] = most;
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    if (n >= live) break;
    float weight[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float peak = running.peak[n][i];
      for (int w = 0; w < kWarps; ++w) {
        peak = fmaxf(peak, reduce[w * S::kQueries + n * 8 + 2 * t + i]);
      }
      const float base = peak == -INFINITY ? 0.0f : peak;
      correction[n][i] = exp2_fast(running.peak[n][i] - base);
      running.peak[n][i] = peak;
      weight[i] = exp2_fast(c[n][i] - base);
      weight[i + 2] = exp2_fast(c[n][i + 2] - base);
      running.total[n][i] =
          fmaf(running.total[n][i], correction[n][i], __fadd_rn(weight[i], weight[i + 2]));
    }
    std::byte* to = weights + (warp * 16 + g) * S::kPRowBytes + n * 16 + t * 4;
    *reinterpret_cast<uint32_t*>(to) = pack(weight[0], weight[1], T{});
    *reinterpret_cast<uint32_t*>(to + 8 * S::kPRowBytes) = pack(weight[2], weight[3], T{});
  }
}

// Sums of the totals over lanes and warps, in a fixed order; then everything to memory.
template <int kDim, int kTiles>
__device__ void save_split(
    const FewArgs& a, const Queries& queries, int live, Running<kTiles>& running,
    float (&out)[FewShape<kDim, kTiles>::kChunks][FewShape<kDim, kTiles>::kStrips][kTiles][4],
    float* reduce) {
  using S = FewShape<kDim, kTiles>;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
  const int run = blockIdx.z, split = gridDim.x - 1 - blockIdx.x;
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    if (n >= live) break;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float total = running.total[n][i];
      for (int offset = 4; offset < kWarp; offset *= 2) {
        total += __shfl_xor_sync(kAll, total, offset);
      }
      if (g == 0) reduce[warp * S::kQueries + n * 8 + 2 * t + i] = total;
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    if (n >= live) break;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int query = n * 8 + 2 * t + i;
      if (query >= queries.count) continue;
      const int64_t at =
          a.at(run, queries.row(query, a.p) - queries.row_first, queries.head(query, a.p), split);
      if (warp == 0 && g == 0) {
        float total = 0;
        for (int w = 0; w < kWarps; ++w) total += reduce[w * S::kQueries + query];
        a.peak_total[at] = {running.peak[n][i], total};
      }
      float* to = a.partial + at * kDim + warp * S::kStrips * 16 + g;
#pragma unroll
      for (int chunk = 0; chunk < S::kChunks; ++chunk) {
#pragma unroll
        for (int strip = 0; strip < S::kStrips; ++strip) {
          to[chunk * S::kChunk + strip * 16] = out[chunk][strip][n][i];
          to[chunk * S::kChunk + strip * 16 + 8] = out[chunk][strip][n][i + 2];
        }
      }
    }
  }
}

// The tokens of the split that some query of the CTA sees, and each query's own in `spans`.
__device__ inline int2 common_span(const Args& p, const Queries& queries, int slots, int2* spans) {
  for (int i = threadIdx.x; i < slots; i += kThreads) {
    int2 span{0, -1};
    if (i < queries.count) {
      const int position = p.positions[queries.row(i, p)];
      span = {p.first_token(position), position};
    }
    spans[i] = span;
  }
  __syncthreads();
  int2 all = spans[0];
  for (int i = 1; i < queries.count; ++i) {
    all.x = min(all.x, spans[i].x);
    all.y = max(all.y, spans[i].y);
  }
  return all;
}

template <class Format, int kDim, int kTiles>
__global__ void __launch_bounds__(kThreads) attend_few(FewArgs a) {
  using S = FewShape<kDim, kTiles>;
  using T = typename Format::Operand;
  extern __shared__ __align__(128) std::byte memory[];
  cuda::start_next();
  cuda::wait_for_earlier();
  const Args& p = a.p;
  const Run run = p.run(a.first_run + blockIdx.z);
  const int kv_head = blockIdx.y % p.cache.heads, part = blockIdx.y / p.cache.heads;
  const int split = gridDim.x - 1 - blockIdx.x;
  Queries queries{run.row_first, kv_head, part * S::kQueries, 0};
  queries.count = min(run.rows * p.group() - queries.first, S::kQueries);
  if (run.rows > kv::kFewRows || queries.count <= 0) return;
  if (p.positions[queries.row(queries.count - 1, p)] < split_begin(split)) return;
  std::byte* const ring_memory = memory;
  std::byte* const q = memory + a.ring * S::kTileBytes;
  std::byte* const weights = q + S::kQBytes;
  auto* const reduce = reinterpret_cast<float*>(weights + S::kPBytes);
  auto* const spans = reinterpret_cast<int2*>(weights + S::kPBytes + S::kReduceBytes);
  const int2 span = common_span(p, queries, S::kQueries, spans);
  const int first = max(span.x, split_begin(split)) / kKvBlock;
  const int end = min(span.y + 1, split_begin(split + 1));
  const int blocks = (end + kKvBlock - 1) / kKvBlock - first;
  if (blocks <= 0) return;
  const Ring<Format, kDim, S> ring{p.cache, run.sequence,
                                   kv_head, first,
                                   end,     blocks * 2 * S::kChunks,
                                   a.ring,  shared_address(ring_memory)};
  ring.fill();
  load_queries<T, kDim>(p, queries, S::kQueries, q);
  const int live = (queries.count + 7) / 8;
  float out[S::kChunks][S::kStrips][kTiles][4] = {};
  Running<kTiles> running;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    running.peak[n][0] = running.peak[n][1] = -INFINITY;
    running.total[n][0] = running.total[n][1] = 0;
  }
  for (int block = 0, step = 0; block < blocks; ++block) {
    float c[kTiles][4] = {}, correction[kTiles][2];
#pragma unroll
    for (int chunk = 0; chunk < S::kChunks; ++chunk) {
      multiply_keys<T, kDim, kTiles>(ring.next(step++), shared_address(q), chunk, live, c);
    }
    softmax_tile<T, kDim, kTiles>(p, spans, (first + block) * kKvBlock, live, c, running,
                                  correction, reduce, weights);
#pragma unroll
    for (int chunk = 0; chunk < S::kChunks; ++chunk) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        if (n >= live) break;
#pragma unroll
        for (int strip = 0; strip < S::kStrips; ++strip) {
#pragma unroll
          for (int i = 0; i < 4; ++i) out[chunk][strip][n][i] *= correction[n][i % 2];
        }
      }
      multiply_values<T, kDim, kTiles>(ring.next(step++), shared_address(weights), live,
                                       out[chunk]);
    }
  }
  save_split<kDim, kTiles>(a, queries, live, running, out, reduce);
}

constexpr int kCombineThreads = 256;

// Grid: (query heads, rows of runs). Shared memory: a weight per split, then [groups, head_dim].
template <int kDim>
__global__ void __launch_bounds__(kCombineThreads) combine(FewArgs a) {
  extern __shared__ __align__(16) float shared[];
  __shared__ float reduce[kWarp];
  cuda::start_next();
  cuda::wait_for_earlier();
  constexpr int kLanes = kDim / 4, kGroups = kCombineThreads / kLanes;
  const int index = blockIdx.y / a.rows_max, row = blockIdx.y % a.rows_max, head = blockIdx.x;
  const Run run = a.p.run(a.first_run + index);
  if (run.rows > kv::kFewRows || row >= run.rows) return;
  const int position = a.p.positions[run.row_first + row];
  const int first = split_of(a.p.first_token(position));
  const int count = split_of(position) + 1 - first;
  const int64_t at = a.at(index, row, head, first);
  float* const sums = shared + (a.splits + 3) / 4 * 4;
  float peak = -INFINITY;
  for (int i = threadIdx.x; i < count; i += kCombineThreads) {
    peak = fmaxf(peak, a.peak_total[at + i].x);
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    peak = fmaxf(peak, __shfl_xor_sync(kAll, peak, offset));
  }
  if (threadIdx.x % kWarp == 0) reduce[threadIdx.x / kWarp] = peak;
  __syncthreads();
  for (int w = 0; w < kCombineThreads / kWarp; ++w) peak = fmaxf(peak, reduce[w]);
  float total = 0;
  for (int i = threadIdx.x; i < count; i += kCombineThreads) {
    const float2 split = a.peak_total[at + i];
    const float weight = exp2_fast(split.x - peak);
    shared[i] = weight;
    total = fmaf(split.y, weight, total);
  }
  total = cuda::block_sum(total, reduce);  // its barriers publish the weights
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  float4 sum{};
#pragma unroll 4
  for (int i = group; i < count; i += kGroups) {
    const float4 v = *reinterpret_cast<const float4*>(a.partial + (at + i) * kDim + lane * 4);
    const float weight = shared[i];
    sum.x = fmaf(v.x, weight, sum.x);
    sum.y = fmaf(v.y, weight, sum.y);
    sum.z = fmaf(v.z, weight, sum.z);
    sum.w = fmaf(v.w, weight, sum.w);
  }
  *reinterpret_cast<float4*>(sums + group * kDim + lane * 4) = sum;
  __syncthreads();
  for (int i = threadIdx.x; i < kDim; i += kCombineThreads) {
    float all = 0;
    for (int g = 0; g < kGroups; ++g) all += sums[g * kDim + i];
    const int64_t column = int64_t{head} * kDim + i;
    a.p.out.row(run.row_first + row)[column] =
        all / total * a.p.gate_factor(run.row_first + row, column);
  }
}

}  // namespace exode::kv_cuda
