// What the two attention kernels share: arguments, which rows belong together, scores.
//
// A format is a type with
//   using Operand = __half or __nv_bfloat16;             what the tensor cores see
//   template <int kDim, int kThreads> __device__ static void load_tile(
//       const Cache&, Part, int block, int head, int first_dim, int tokens, uint32_t to);
// which every thread of the CTA calls: it starts the asynchronous copy of tokens 0…63 and values
// [first_dim, first_dim + kDim) of one head and block to the swizzled [64, kDim] tile at the shared
// address `to`; tokens from `tokens` on become zeros, since memory never written may hold NaN.
#pragma once

#include "kv/cuda/mma.cuh"
#include "kv/kv.h"
#include "ops/cuda/launch.cuh"

namespace exode::kv_cuda {

using cuda::ConstRows;
using cuda::Rows;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr float kLog2E = 1.44269504f;

enum class Part { kKey, kValue };

struct Cache {
  const std::byte* base;
  int64_t block_stride;
  const int32_t* table;
  int64_t table_stride;
  int heads, dim;
  __device__ int block(int sequence, int token) const {
    return table[sequence * table_stride + token / kKvBlock];
  }
};

// Null row_first: every row stands alone and names its sequence itself.
struct Sequences {
  const int32_t *row_first, *row_count, *seq_of_row;
  int count;  // of sequences, or of rows
};

struct Run {
  int sequence = 0, row_first = 0, rows = 0;
};

struct Args {
  Cache cache;
  ConstRows q, gate;  // gate.data may be null
  Rows out;
  const int32_t* positions;
  Sequences sequences;
  int q_heads, window;
  float scale, soft_cap;

  __device__ int group() const { return q_heads / cache.heads; }
  __device__ int first_token(int position) const {
    return window > 0 ? max(0, position - window + 1) : 0;
  }
  __device__ Run run(int index) const {
    const Sequences& s = sequences;
    if (s.row_first != nullptr) return {index, s.row_first[index], s.row_count[index]};
    return {s.seq_of_row[index], index, s.seq_of_row[index] < 0 ? 0 : 1};
  }
  // In units in which the weight of a token is 2^score.
  __device__ float score(float product) const {
    if (soft_cap > 0) return soft_cap * kLog2E * tanhf(product * scale / soft_cap);
    return __fmul_rn(product, scale * kLog2E);  // never fused into what follows
  }
  __device__ float gate_factor(int row, int64_t column) const {
    return gate.data == nullptr ? 1.0f : cuda::sigmoid(gate.row(row)[column]);
  }
};

inline Args args_of(const kv::Attend& op) {
  const KvView& c = op.cache;
  const bool alone = op.seqs.seqs() == 0;
  return {.cache = {c.base, c.block_stride, cuda::ints(c.block_table), c.block_table.row_stride,
                    c.heads, c.head_dim},
          .q = cuda::rows_of(op.q),
          .gate = op.gate.empty() ? ConstRows{} : cuda::rows_of(op.gate),
          .out = cuda::rows_of(op.out),
          .positions = cuda::ints(op.positions),
          .sequences = {alone ? nullptr : cuda::ints(op.seqs.row_first),
                        alone ? nullptr : cuda::ints(op.seqs.row_count), cuda::ints(op.seq_of_row),
                        alone ? op.q.rows() : op.seqs.seqs()},
          .q_heads = op.q.cols() / c.head_dim,
          .window = op.window,
          .scale = op.scale,
          .soft_cap = op.soft_cap};
}

// The queries of one CTA: pairs of a row of the run and a query head of the KV head, numbered row
// by row, from `first` on.
struct Queries {
  int row_first, kv_head, first, count;
  __device__ int row(int i, const Args& p) const { return row_first + (first + i) / p.group(); }
  __device__ int head(int i, const Args& p) const {
    return kv_head * p.group() + (first + i) % p.group();
  }
};

// Queries as a swizzled [kSlots, kDim] tile of operands; zeros past the last.
template <class T, int kDim>
__device__ void load_queries(const Args& p, const Queries& queries, int slots, std::byte* to) {
  for (int i = threadIdx.x; i < slots * (kDim / kSegment); i += kThreads) {
    const int query = i / (kDim / kSegment), segment = i % (kDim / kSegment);
    uint4 v{};
    if (query < queries.count) {
      const float* from = p.q.row(queries.row(query, p)) + int64_t{queries.head(query, p)} * kDim +
                          segment * kSegment;
      const float4 a = *reinterpret_cast<const float4*>(from);
      const float4 b = *reinterpret_cast<const float4*>(from + 4);
      v = {pack(a.x, a.y, T{}), pack(a.z, a.w, T{}), pack(b.x, b.y, T{}), pack(b.z, b.w, T{})};
    }
    *reinterpret_cast<uint4*>(to + swizzled(query, segment, kDim * 2)) = v;
  }
}

}  // namespace exode::kv_cuda
