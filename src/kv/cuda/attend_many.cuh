// Attention of sequences that bring more than kFewRows rows: prompts.
//
//   CTA = (64 queries: rows × query heads of one KV head); warp w: queries 16 w … 16 w + 15
//   K and V of a block have one tile of shared memory each: V arrives under Q K^T, the next K
//   under P V, so 64 · 3 · head_dim · 2 bytes are enough and two CTAs fit where memory is ample.
//
// A row's sums run over its blocks in order, whatever the step it came with.
#pragma once

#include "kv/cuda/attend.cuh"

namespace exode::kv_cuda {

constexpr int kManyQueries = kWarps * 16;

template <int kDim>
constexpr size_t many_shared_bytes() {
  return size_t{3} * 64 * kDim * 2;
}

struct RowPair {
  int row[2];  // of the queries g and g + 8; −1 past the last
  int head[2];
  int first[2], last[2];  // tokens they see
};

// scores[n] = Q[16 queries of the warp] · K[8 n … 8 n + 7]^T
template <class T, int kDim>
__device__ void score_block(uint32_t q, uint32_t k, float (&scores)[8][4]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll 4
  for (int d = 0; d < kDim / 16; ++d) {
    uint32_t a[4];
    load_matrices(a, q + swizzled(warp * 16 + lane % 16, d * 2 + lane / 16, kDim * 2));
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      uint32_t b[4];
      const int token = n * 8 + lane / 16 * 8 + lane % 8;
      load_matrices(b, k + swizzled(token, d * 2 + lane / 8 % 2, kDim * 2));
      mma(scores[n], a, b[0], b[1], T{});
      mma(scores[n + 1], a, b[2], b[3], T{});
    }
  }
}

// out += P · V, P in registers as the scores were.
template <class T, int kDim>
__device__ void add_block(const float (&p)[8][4], uint32_t v, float (&out)[kDim / 8][4]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int tokens = 0; tokens < 4; ++tokens) {
    const float(&low)[4] = p[2 * tokens];
    const float(&high)[4] = p[2 * tokens + 1];
    const uint32_t a[4] = {pack(low[0], low[1], T{}), pack(low[2], low[3], T{}),
                           pack(high[0], high[1], T{}), pack(high[2], high[3], T{})};
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      uint32_t b[4];
      load_matrices_transposed(b, v + swizzled(tokens * 16 + lane % 16, n + lane / 16, kDim * 2));
      mma(out[n], a, b[0], b[1], T{});
      mma(out[n + 1], a, b[2], b[3], T{});
    }
  }
}

// Scores to weights; peak and total of the two queries move on, their sums are rescaled.
template <int kDim>
__device__ void softmax_block(const Args& args, const RowPair& rows, int first_token, bool masked,
                              float (&scores)[8][4], float (&peak)[2], float (&total)[2],
                              float (&out)[kDim / 8][4]) {
  const int t = threadIdx.x % 4;
  float next[2] = {peak[0], peak[1]};
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = first_token + n * 8 + 2 * t + i % 2;
      scores[n][i] = args.score(scores[n][i]);
      if (masked && (token < rows.first[i / 2] || token > rows.last[i / 2])) {
        scores[n][i] = -INFINITY;
      }
      next[i / 2] = fmaxf(next[i / 2], scores[n][i]);
    }
  }
  float correction[2], sum[2] = {0, 0};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    next[h] = fmaxf(next[h], __shfl_xor_sync(kAll, next[h], 1));
    next[h] = fmaxf(next[h], __shfl_xor_sync(kAll, next[h], 2));
    const float base = next[h] == -INFINITY ? 0.0f : next[h];
    correction[h] = exp2_fast(peak[h] - base);
    peak[h] = next[h];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 2 * h; i < 2 * h + 2; ++i) {
        scores[n][i] = exp2_fast(scores[n][i] - base);
        sum[h] += scores[n][i];
      }
    }
    total[h] = fmaf(total[h], correction[h], sum[h]);
  }
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[n][i] *= correction[i / 2];
  }
}

template <int kDim>
__device__ void save_rows(const Args& p, const RowPair& rows, float (&total)[2],
                          const float (&out)[kDim / 8][4]) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    total[h] += __shfl_xor_sync(kAll, total[h], 1);
    total[h] += __shfl_xor_sync(kAll, total[h], 2);
    if (rows.row[h] < 0) continue;
    const float factor = 1.0f / total[h];
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const int64_t column = int64_t{rows.head[h]} * kDim + n * 8 + 2 * t;
      const float2 v{out[n][2 * h] * factor * p.gate_factor(rows.row[h], column),
                     out[n][2 * h + 1] * factor * p.gate_factor(rows.row[h], column + 1)};
      *reinterpret_cast<float2*>(p.out.row(rows.row[h]) + column) = v;
    }
  }
}

// The `tile`-th 64 queries of all prompts of the step together; count 0 when there are fewer.
__device__ inline Queries queries_of_tile(const Args& p, int tile, int kv_head, int* sequence) {
  for (int s = 0; s < p.sequences.count; ++s) {
    const Run run = p.run(s);
    if (run.rows <= kv::kFewRows) continue;
    const int queries = run.rows * p.group();
    const int tiles = (queries + kManyQueries - 1) / kManyQueries;
    if (tile < tiles) {
      *sequence = run.sequence;
      const int first = tile * kManyQueries;
      return {run.row_first, kv_head, first, min(kManyQueries, queries - first)};
    }
    tile -= tiles;
  }
  return {0, 0, 0, 0};
}

__device__ inline RowPair row_pair(const Args& p, const Queries& queries) {
  RowPair rows;
  const int query = threadIdx.x / kWarp * 16 + threadIdx.x % kWarp / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int q = query + 8 * h;
    const bool live = q < queries.count;
    rows.row[h] = live ? queries.row(q, p) : -1;
    rows.head[h] = live ? queries.head(q, p) : 0;
    rows.last[h] = live ? p.positions[rows.row[h]] : -1;
    rows.first[h] = live ? p.first_token(rows.last[h]) : 0;
  }
  return rows;
}

// Grid: (tiles of queries, KV heads).
template <class Format, int kDim>
__global__ void __launch_bounds__(kThreads, 2) attend_many(Args p) {
  using T = typename Format::Operand;
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kTileBytes = kKvBlock * kDim * 2;
  cuda::start_next();
  cuda::wait_for_earlier();
  int sequence = 0;
  const int kv_head = blockIdx.y, tile = gridDim.x - 1 - blockIdx.x;  // the longest first
  const Queries queries = queries_of_tile(p, tile, kv_head, &sequence);
  if (queries.count == 0) return;
  const uint32_t q = shared_address(memory), k = q + kTileBytes, v = k + kTileBytes;
  const RowPair rows = row_pair(p, queries);
  const int least = p.positions[queries.row(0, p)];
  const int most = p.positions[queries.row(queries.count - 1, p)];
  const int first = p.first_token(least) / kKvBlock, last = most / kKvBlock;
  const auto load = [&](Part part, int block, uint32_t to) {
    Format::template load_tile<kDim, kThreads>(p.cache, part,
                                               p.cache.block(sequence, block * kKvBlock), kv_head,
                                               0, most + 1 - block * kKvBlock, to);
    commit_copies();
  };
  load(Part::kKey, first, k);
  load_queries<T, kDim>(p, queries, kManyQueries, memory);
  float out[kDim / 8][4] = {}, peak[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
  for (int block = first; block <= last; ++block) {
    const int token = block * kKvBlock;
    wait_copies<0>();
    __syncthreads();  // K is there, and V of the block before is used up
    load(Part::kValue, block, v);
    float scores[8][4] = {};
    score_block<T, kDim>(q, k, scores);
    const bool masked = token + kKvBlock - 1 > least || token < p.first_token(most);
    softmax_block<kDim>(p, rows, token, masked, scores, peak, total, out);
    wait_copies<0>();
    __syncthreads();  // V is there, and K is used up
    if (block < last) load(Part::kKey, block + 1, k);
    add_block<T, kDim>(scores, v, out);
  }
  save_rows<kDim>(p, rows, total, out);
}

}  // namespace exode::kv_cuda
