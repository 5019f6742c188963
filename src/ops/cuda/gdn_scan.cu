// The chunked delta rule's walk over the chunks of a slice, and the gated norm after it.
//
// A CTA has half of a value head's values, a warp 16 of them: Sᵀ in f32 accumulators, 16 × 128.
// Everything is computed transposed, values in rows, so that each product's accumulators are the
// next one's operand A as they lie and warps share nothing but the tiles in shared memory:
//
//   Rᵀ = Vᵀ − (S Kᵀ) diag(e^G)      Dᵀ = Rᵀ Tᵀ         T = (1 + A)⁻¹ diag(β)
//   Oᵀ = (S Qᵀ) diag(e^G) + Dᵀ Pᵀ   S ← e^(G_C) S + Dᵀ diag(e^(G_C − G)) K
//
// Tiles arrive by asynchronous copies: K, T and V of the next chunk during the whole of this one,
// Q and P while the state is updated. 88 KiB in all, what every supported device has.
#include "ops/cuda/gdn_chunk.cuh"

namespace exode::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kWarpValues = 16;
constexpr int kValues = kWarps * kWarpValues;  // of a CTA
constexpr int kHalves = kGdnDim / kValues;     // CTAs of a head

struct Shared {
  struct {
    __half k[kChunk * kGdnDim], solve[kChunk * kChunk], v[kChunk * kValues];
    float decays[2 * kChunk];
  } early[2];
  __half q[kChunk * kGdnDim], mix[kChunk * kChunk];
};

struct Work {  // of a CTA
  int s, head, key_head, half;
};

__device__ inline void copy_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// kChunk rows of COLS halves whose rows lie `stride` halves apart.
template <int COLS>
__device__ inline void copy_tile(__half* to, const __half* from, int stride) {
  constexpr int kSegments = COLS / 8;
  const uint32_t tile = shared_address(to);
#pragma unroll
  for (int i = threadIdx.x; i < kChunk * kSegments; i += kThreads) {
    const int row = i / kSegments, segment = i % kSegments;
    copy_16(tile + tile_offset<COLS>(row, segment), from + row * stride + segment * 8);
  }
}

__device__ inline __half* values_of(const ChunkArgs& a, const Work& w, int chunk) {
  return a.tiles.v + a.value_head(chunk, w.head) * kChunk * kGdnDim + w.half * kValues;
}

__device__ inline void fetch_early(const ChunkArgs& a, const Work& w, int chunk, int buffer,
                                   Shared& shared) {
  auto& to = shared.early[buffer];
  const int64_t head = a.value_head(chunk, w.head);
  copy_tile<kGdnDim>(to.k, a.tiles.k + a.key_tile(chunk, w.key_head), kGdnDim);
  copy_tile<kChunk>(to.solve, a.tiles.solve + head * kChunk * kChunk, kChunk);
  copy_tile<kValues>(to.v, values_of(a, w, chunk), kGdnDim);
  if (threadIdx.x < 2 * kChunk / 4) {
    copy_16(shared_address(to.decays + threadIdx.x * 4),
            a.tiles.decays + head * 2 * kChunk + threadIdx.x * 4);
  }
}
__device__ inline void fetch_late(const ChunkArgs& a, const Work& w, int chunk, Shared& shared) {
  copy_tile<kGdnDim>(shared.q, a.tiles.q + a.key_tile(chunk, w.key_head), kGdnDim);
  copy_tile<kChunk>(shared.mix, a.tiles.mix + a.value_head(chunk, w.head) * kChunk * kChunk,
                    kChunk);
}

using State = float[kGdnDim / 8][4];  // accumulators [16 values, 128 keys]
using Tokens = float[kChunk / 8][4];  // accumulators [16 values, 64 tokens]
using StateOperand = uint32_t[kGdnDim / 16][4];
using TokenOperand = uint32_t[kChunk / 16][4];

template <int TILES>
__device__ inline void to_operand(const float (&c)[TILES][4], uint32_t (&a)[TILES / 2][4]) {
#pragma unroll
  for (int i = 0; i < TILES / 2; ++i) {
    a[i][0] = pack_halves(c[2 * i][0], c[2 * i][1]);
    a[i][1] = pack_halves(c[2 * i][2], c[2 * i][3]);
    a[i][2] = pack_halves(c[2 * i + 1][0], c[2 * i + 1][1]);
    a[i][3] = pack_halves(c[2 * i + 1][2], c[2 * i + 1][3]);
  }
}

// c += S tileᵀ for a tile [tokens, keys].
__device__ inline void times_keys(const StateOperand& state, const __half* tile, Tokens& c) {
  const uint32_t from = shared_address(tile);
#pragma unroll
  for (int k = 0; k < kGdnDim; k += 16) {
#pragma unroll
    for (int n = 0; n < kChunk; n += 16) {
      uint32_t b[4];
      load_matrices(b, b_address<kGdnDim>(from, n, k));
      mma_halves(c[n / 8], state[k / 16], b[0], b[1]);
      mma_halves(c[n / 8 + 1], state[k / 16], b[2], b[3]);
    }
  }
}

// c += x tileᵀ for a lower triangular tile [tokens, tokens].
__device__ inline void times_triangle(const TokenOperand& x, const __half* tile, Tokens& c) {
  const uint32_t from = shared_address(tile);
#pragma unroll
  for (int k = 0; k < kChunk; k += 16) {
#pragma unroll
    for (int n = k; n < kChunk; n += 16) {
      uint32_t b[4];
      load_matrices(b, b_address<kChunk>(from, n, k));
      mma_halves(c[n / 8], x[k / 16], b[0], b[1]);
      mma_halves(c[n / 8 + 1], x[k / 16], b[2], b[3]);
    }
  }
}

// state += x tile for a tile [tokens, keys].
__device__ inline void add_outer(const TokenOperand& x, const __half* tile, State& state) {
  const uint32_t from = shared_address(tile);
#pragma unroll
  for (int k = 0; k < kChunk; k += 16) {
#pragma unroll
    for (int n = 0; n < kGdnDim; n += 16) {
      uint32_t b[4];
      load_matrices_transposed(b, b_transposed_address<kGdnDim>(from, n, k));
      mma_halves(state[n / 8], x[k / 16], b[0], b[1]);
      mma_halves(state[n / 8 + 1], x[k / 16], b[2], b[3]);
    }
  }
}

// Columns (tokens) times `by`.
__device__ inline void scale_tokens(const float* by, Tokens& c) {
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    const float2 f = *reinterpret_cast<const float2*>(by + n * 8 + threadIdx.x % 4 * 2);
    c[n][0] *= f.x;
    c[n][1] *= f.y;
    c[n][2] *= f.x;
    c[n][3] *= f.y;
  }
}

// c ← Vᵀ − c
__device__ inline void subtract_from_values(const __half* tile, Tokens& c) {
  const int lane = threadIdx.x % kWarp, segment = threadIdx.x / kWarp * (kWarpValues / 8);
  const uint32_t from = shared_address(tile);
#pragma unroll
  for (int n = 0; n < kChunk / 8; n += 2) {
    uint32_t v[4];
    load_matrices_transposed(
        v, from + tile_offset<kValues>(n * 8 + lane / 16 * 8 + lane % 8, segment + lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&v[i]));
      float* to = &c[n + i / 2][i % 2 * 2];
      to[0] = f.x - to[0];
      to[1] = f.y - to[1];
    }
  }
}

__device__ inline uint32_t transpose(uint32_t matrix) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(matrix));
  return out;
}

// Oᵀ over the values that it came from: nobody else reads those of this warp.
__device__ inline void write_outputs(const ChunkArgs& a, const Work& w, int chunk,
                                     const Tokens& c) {
  const int lane = threadIdx.x % kWarp;
  __half* to = values_of(a, w, chunk) + threadIdx.x / kWarp * kWarpValues + lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    __half* row = to + (n * 8 + lane / 4) * kGdnDim;
    *reinterpret_cast<uint32_t*>(row) = transpose(pack_finite(c[n][0], c[n][1]));
    *reinterpret_cast<uint32_t*>(row + 8) = transpose(pack_finite(c[n][2], c[n][3]));
  }
}

// The place of accumulator pair (tile n, half h) in the state.
__device__ inline float* state_at(const ChunkArgs& a, const Work& w, int n, int h) {
  const int lane = threadIdx.x % kWarp;
  const int value = w.half * kValues + threadIdx.x / kWarp * kWarpValues + lane / 4 + h * 8;
  return a.net.state(w.s, w.head) + value * kGdnDim + n * 8 + lane % 4 * 2;
}

__device__ inline void load_state(const ChunkArgs& a, const Work& w, State& state) {
  const bool fresh = a.net.seqs.fresh[w.s] != 0;
#pragma unroll
  for (int n = 0; n < kGdnDim / 8; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 v =
          fresh ? make_float2(0, 0) : *reinterpret_cast<const float2*>(state_at(a, w, n, h));
      state[n][2 * h] = v.x;
      state[n][2 * h + 1] = v.y;
    }
  }
}
__device__ inline void store_state(const ChunkArgs& a, const Work& w, const State& state) {
#pragma unroll
  for (int n = 0; n < kGdnDim / 8; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      *reinterpret_cast<float2*>(state_at(a, w, n, h)) =
          make_float2(state[n][2 * h], state[n][2 * h + 1]);
    }
  }
}

// The last inputs of the slice; the kernel before this one has read the old tail.
__device__ inline void store_tail(const ChunkArgs& a, const Work& w) {
  const int row = a.net.seqs.count[w.s] - kGdnTail;
  const auto move = [&](int channel, int count) {
    for (int i = threadIdx.x; i < kGdnTail * count; i += kThreads) {
      const int entry = i / count, at = channel + i % count;
      *a.net.tail(w.s, entry, at) = *a.net.input(w.s, row + entry, at);
    }
  };
  move(a.net.v_channel(w.head) + w.half * kValues, kValues);
  if (w.head % a.net.group() != 0) return;
  if (w.half == 0) {
    move(a.net.q_channel(w.key_head), kGdnDim);
  } else {
    move(a.net.k_channel(w.key_head), kGdnDim);
  }
}

__global__ void __launch_bounds__(kThreads, 2) scan(ChunkArgs a) {
  start_next();
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  Work w{};
  w.s = blockIdx.y;
  w.head = blockIdx.x / kHalves;
  w.half = blockIdx.x % kHalves;
  w.key_head = w.head / a.net.group();
  wait_for_earlier();
  if (!is_long(a.net, w.s)) return;
  const ChunkRun run = chunks_of(a.net, w.s);
  fetch_early(a, w, run.first, 0, shared);
  commit();
  fetch_late(a, w, run.first, shared);
  commit();
  State state;
  load_state(a, w, state);
  store_tail(a, w);

  for (int i = 0; i < run.count; ++i) {
    const auto& tiles = shared.early[i % 2];
    const bool more = i + 1 < run.count;
    wait_copies<1>();
    __syncthreads();  // the tiles are there, and nobody reads those of the chunk before
    if (more) fetch_early(a, w, run.first + i + 1, (i + 1) % 2, shared);
    commit();
    StateOperand old;
    to_operand(state, old);
    TokenOperand corrections;
    {
      Tokens c = {};
      times_keys(old, tiles.k, c);
      scale_tokens(tiles.decays, c);
      subtract_from_values(tiles.v, c);
      to_operand(c, corrections);
    }
    Tokens d = {};
    times_triangle(corrections, tiles.solve, d);
    to_operand(d, corrections);
    wait_copies<1>();
    __syncthreads();
    {
      Tokens c = {};
      times_keys(old, shared.q, c);
      scale_tokens(tiles.decays, c);
      times_triangle(corrections, shared.mix, c);
      __syncthreads();  // q and mix may be overwritten
      if (more) fetch_late(a, w, run.first + i + 1, shared);
      commit();
      write_outputs(a, w, run.first + i, c);
    }
    scale_tokens(tiles.decays + kChunk, d);
    to_operand(d, corrections);
    const float carried = tiles.decays[kChunk - 1];
#pragma unroll
    for (int n = 0; n < kGdnDim / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) state[n][j] *= carried;
    }
    add_outer(corrections, tiles.k, state);
  }
  store_state(a, w, state);
}

constexpr int kNormWarps = 8;
constexpr int kNormRows = kChunk / kNormWarps;

// A CTA has a chunk and a value head, a warp eight rows.
__global__ void __launch_bounds__(kNormWarps* kWarp) norm_chunks(ChunkArgs a) {
  start_next();
  __shared__ ChunkRows found;
  const int head = blockIdx.x, number = blockIdx.y, lane = threadIdx.x % kWarp;
  const ChunkRows chunk = find_chunk(a.net, number, found);
  wait_for_earlier();
  if (chunk.s < 0) return;
  const int first = threadIdx.x / kWarp * kNormRows;
  const __half* tile = a.tiles.v + a.value_head(number, head) * kChunk * kGdnDim;
  const int64_t row = a.net.seqs.first[chunk.s] + chunk.row + first;
  float4 x[kNormRows], z[kNormRows];
#pragma unroll
  for (int i = 0; i < kNormRows; ++i) {
    const uint2 halves = *reinterpret_cast<const uint2*>(tile + (first + i) * kGdnDim + lane * 4);
    const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&halves.x));
    const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&halves.y));
    x[i] = make_float4(low.x, low.y, high.x, high.y);
    z[i] = make_float4(0, 0, 0, 0);
    if (chunk.live(first + i))
      z[i] = load4(a.net.qkvz.row(row + i) + a.net.z_channel(head) + 4 * lane);
  }
  const float4 weight = load4(a.net.norm + 4 * lane);
#pragma unroll
  for (int i = 0; i < kNormRows; ++i) {
    const float mean = warp_sum(dot4(x[i], x[i], 0.0f)) / static_cast<float>(kGdnDim);
    const float scale = rsqrtf(mean + a.net.eps);
    if (!chunk.live(first + i)) continue;
    store4(a.net.out.row(row + i) + head * kGdnDim + 4 * lane,
           make_float4(
               x[i].x * scale * weight.x * silu(z[i].x), x[i].y * scale * weight.y * silu(z[i].y),
               x[i].z * scale * weight.z * silu(z[i].z), x[i].w * scale * weight.w * silu(z[i].w)));
  }
}

}  // namespace

void gdn_scan(cudaStream_t stream, const ChunkArgs& a) {
  EXODE_CUDA_CHECK(
      cudaFuncSetAttribute(scan, cudaFuncAttributeMaxDynamicSharedMemorySize, int{sizeof(Shared)}));
  const dim3 grid(static_cast<unsigned>(a.net.shape.value_heads * kHalves),
                  static_cast<unsigned>(a.net.seqs.seqs));
  launch_chained(stream, scan, grid, kThreads, sizeof(Shared), a);
}

void gdn_norm_chunks(cudaStream_t stream, const ChunkArgs& a, int chunks) {
  const dim3 grid(static_cast<unsigned>(a.net.shape.value_heads), static_cast<unsigned>(chunks));
  launch_chained(stream, norm_chunks, grid, kNormWarps * kWarp, 0, a);
}

}  // namespace exode::cuda
