// The chunks of a step, what lies between the kernels of the chunked form, and the tensor-core
// vocabulary. A lane is (g, t) = (lane / 4, lane % 4); a segment is 16 bytes, eight halves.
//
// Chunks are aligned to positions: rows of a chunk that lie outside the slice count as tokens that
// neither write nor read. Chunk c of sequence s has number row_first / kGdnChunk + 2 s + c, which
// leaves room for a cut chunk at either end of every slice.
#pragma once

#include "ops/cuda/gdn_common.cuh"

namespace exode::cuda {

constexpr int kChunk = kGdnChunk;

struct ChunkTiles {
  __half *q, *k;  // [chunks, key_heads, kChunk, kGdnDim], normalised
  __half* v;      // [chunks, value_heads, kChunk, kGdnDim]; then the outputs before the norm
  __half* solve;  // [chunks, value_heads, kChunk, kChunk]: (1 + A)⁻¹ diag(β)
  __half* mix;    // [chunks, value_heads, kChunk, kChunk]: (q_t·k_s) e^(G_t − G_s), s ≤ t
  float* decays;  // [chunks, value_heads, 2, kChunk]: e^(G_t), then e^(G_C − G_t)
};

struct ChunkArgs {
  GdnArgs net;
  ChunkTiles tiles;

  __device__ int64_t key_tile(int chunk, int key_head) const {
    return (int64_t{chunk} * net.shape.key_heads + key_head) * kChunk * kGdnDim;
  }
  __device__ int64_t value_head(int chunk, int head) const {
    return int64_t{chunk} * net.shape.value_heads + head;
  }
};

struct ChunkRows {
  int s;     // −1: no chunk has this number
  int row;   // of the slice, at the chunk's start; negative if the slice starts later
  int rows;  // of the slice
  __device__ bool live(int t) const { return row + t >= 0 && row + t < rows; }
};

struct ChunkRun {  // the chunks of a sequence
  int first, count;
  int row;  // as in ChunkRows, of the first
};

__device__ inline bool is_long(const GdnArgs& a, int s) { return a.seqs.count[s] > kGdnFewRows; }

__device__ inline ChunkRun chunks_of(const GdnArgs& a, int s) {
  const int row = a.seqs.first[s], before = a.positions[row] % kChunk;
  return {row / kChunk + 2 * s, (before + a.seqs.count[s] + kChunk - 1) / kChunk, -before};
}

// All threads of the block take part; `found` is shared.
__device__ inline ChunkRows find_chunk(const GdnArgs& a, int number, ChunkRows& found) {
  if (threadIdx.x == 0) found.s = -1;
  __syncthreads();
  for (int s = threadIdx.x; s < a.seqs.seqs; s += blockDim.x) {
    if (!is_long(a, s)) continue;
    const ChunkRun run = chunks_of(a, s);
    if (number < run.first || number >= run.first + run.count) continue;
    found.row = run.row + (number - run.first) * kChunk;
    found.rows = a.seqs.count[s];
    found.s = s;
  }
  __syncthreads();
  return found;
}

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Byte offset of a segment in a tile of halves; eight rows of one column fall into different
// banks.
template <int COLS>
__device__ inline int tile_offset(int row, int segment) {
  return row * (COLS * 2) + ((segment ^ (row & 7)) << 4);
}

__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Operand B of n16 × k16 from a tile that has n in rows and k in columns: registers 0 and 1 for
// the first eight n, 2 and 3 for the others.
template <int COLS>
__device__ inline uint32_t b_address(uint32_t tile, int n, int k) {
  const int lane = threadIdx.x % kWarp;
  return tile + tile_offset<COLS>(n + lane % 8 + lane / 16 * 8, k / 8 + lane / 8 % 2);
}
// The same from a tile that has k in rows and n in columns, for transposed loads.
template <int COLS>
__device__ inline uint32_t b_transposed_address(uint32_t tile, int n, int k) {
  const int lane = threadIdx.x % kWarp;
  return tile + tile_offset<COLS>(k + lane % 16, n / 8 + lane / 16);
}
// Operand A of m16 × k16.
template <int COLS>
__device__ inline uint32_t a_address(uint32_t tile, int m, int k) {
  const int lane = threadIdx.x % kWarp;
  return tile + tile_offset<COLS>(m + lane % 16, k / 8 + lane / 16);
}

__device__ inline void mma_halves(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t pack_halves(float low, float high) {
  const __half2 v = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}
// Beyond the range of halves the nearest one stands in: an infinity would spoil the state.
__device__ inline uint32_t pack_finite(float low, float high) {
  constexpr float kMax = 65504.0f;
  return pack_halves(fminf(fmaxf(low, -kMax), kMax), fminf(fmaxf(high, -kMax), kMax));
}

void gdn_prepare(cudaStream_t stream, const ChunkArgs& a, int chunks);
void gdn_scan(cudaStream_t stream, const ChunkArgs& a);
void gdn_norm_chunks(cudaStream_t stream, const ChunkArgs& a, int chunks);

}  // namespace exode::cuda
