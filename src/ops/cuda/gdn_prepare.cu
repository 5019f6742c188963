// What the scan needs of a chunk, for all chunks at once: the convolution, q̂ and k̂, and per value
// head the decays, (1 + A)⁻¹ and the masked q k products, all but the decays rounded to halves.
//
// A CTA has a chunk and a key head. Products of keys and queries are taken once, on tensor cores,
// and serve the value heads that share them; the inverse is a forward substitution in f32, a
// thread per column: its entries are products of contractions and never exceed 1.
#include "ops/cuda/gdn_chunk.cuh"

namespace exode::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kHeads = 3;  // value heads at a time
constexpr int kPitch =
    kChunk + 4;                // of the system: float4 rows, transposed writes without conflicts
constexpr int kConvRows = 16;  // that a warp convolves in one go
constexpr int kConvBatch = 8;  // of which it has the loads in flight

// The strictly upper triangle holds Aᵀ, the rest the inverse.
using System = float[kChunk][kPitch];

struct Shared {
  union {
    struct {
      __half q[kChunk * kGdnDim], k[kChunk * kGdnDim];
    } keys;
    System system[kHeads];
  };
  // Log decays summed, as high + low: differences of sums stay exact when one is huge.
  float high[kHeads][kChunk], low[kHeads][kChunk], beta[kHeads][kChunk];
  ChunkRows chunk;
};

__device__ inline float fast_silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

__device__ inline float4 input4(const ChunkArgs& a, const ChunkRows& c, int t, int channel) {
  const int row = c.row + t;
  if (row < -kGdnTail || row >= c.rows) return make_float4(0, 0, 0, 0);
  return load4_or_zero(a.net.input(c.s, row, channel));
}

// A warp: rows [first, first + kConvRows) of 128 channels, four a lane. emit(t, values).
template <class Emit>
__device__ void convolve(const ChunkArgs& a, const ChunkRows& c, int channel, int first,
                         Emit emit) {
  channel += threadIdx.x % kWarp * 4;
  float4 taps[4], window[kGdnTail + kConvBatch];
#pragma unroll
  for (int i = 0; i < 4; ++i) taps[i] = load4(a.net.conv + (channel + i) * kGdnWidth);
#pragma unroll
  for (int i = 0; i < kGdnTail; ++i) window[i] = input4(a, c, first + i - kGdnTail, channel);
#pragma unroll 1
  for (int t = first; t < first + kConvRows; t += kConvBatch) {
#pragma unroll
    for (int u = 0; u < kConvBatch; ++u) window[kGdnTail + u] = input4(a, c, t + u, channel);
#pragma unroll
    for (int u = 0; u < kConvBatch; ++u) {
      const float4* x = window + u;
      const auto at = [](float4 w, float x0, float x1, float x2, float x3) {
        return fast_silu(dot4(w, make_float4(x0, x1, x2, x3), 0.0f));
      };
      const float4 y = make_float4(
          at(taps[0], x[0].x, x[1].x, x[2].x, x[3].x), at(taps[1], x[0].y, x[1].y, x[2].y, x[3].y),
          at(taps[2], x[0].z, x[1].z, x[2].z, x[3].z), at(taps[3], x[0].w, x[1].w, x[2].w, x[3].w));
      emit(t + u, c.live(t + u) ? y : make_float4(0, 0, 0, 0));
    }
#pragma unroll
    for (int i = 0; i < kGdnTail; ++i) window[i] = window[kConvBatch + i];
  }
}

// Four halves of row t of a tile, channels 4 lane….
__device__ inline uint2 four_halves(float4 v) {
  return make_uint2(pack_finite(v.x, v.y), pack_finite(v.z, v.w));
}

// Rows of q (part 0) or k (part 1): normalised, to shared and global memory.
__device__ inline void stage_unit(const ChunkArgs& a, const ChunkRows& c, int number, int key_head,
                                  int part, int first, __half* shared) {
  const int channel = part == 0 ? a.net.q_channel(key_head) : a.net.k_channel(key_head);
  __half* tile = (part == 0 ? a.tiles.q : a.tiles.k) + a.key_tile(number, key_head);
  const float scale = part == 0 ? rsqrtf(static_cast<float>(kGdnDim)) : 1.0f;
  const int lane = threadIdx.x % kWarp;
  convolve(a, c, channel, first, [&](int t, float4 v) {
    const float norm = rsqrtf(warp_sum(dot4(v, v, 0.0f)) + 1e-6f) * scale;
    const uint2 halves = four_halves(make_float4(v.x * norm, v.y * norm, v.z * norm, v.w * norm));
    *reinterpret_cast<uint2*>(tile + t * kGdnDim + lane * 4) = halves;
    *reinterpret_cast<uint2*>(reinterpret_cast<uint8_t*>(shared) +
                              tile_offset<kGdnDim>(t, lane / 2) + lane % 2 * 8) = halves;
  });
}

__device__ inline void stage_values(const ChunkArgs& a, const ChunkRows& c, int number, int head,
                                    int first) {
  __half* tile = a.tiles.v + a.value_head(number, head) * kChunk * kGdnDim;
  convolve(a, c, a.net.v_channel(head), first, [&](int t, float4 v) {
    *reinterpret_cast<uint2*>(tile + t * kGdnDim + threadIdx.x % kWarp * 4) = four_halves(v);
  });
}

__device__ inline void stage_all(const ChunkArgs& a, const ChunkRows& c, int number, int key_head,
                                 Shared& shared) {
  constexpr int kParts = kChunk / kConvRows;
  const int group = a.net.group();
  for (int task = threadIdx.x / kWarp; task < (2 + group) * kParts; task += kWarps) {
    const int part = task / kParts, first = task % kParts * kConvRows;
    if (part < 2) {
      stage_unit(a, c, number, key_head, part, first, part == 0 ? shared.keys.q : shared.keys.k);
    } else {
      stage_values(a, c, number, key_head * group + part - 2, first);
    }
  }
}

// A warp: the gates of a value head, entry h of the arrays. A lane has two tokens.
__device__ inline void stage_gates(const ChunkArgs& a, const ChunkRows& c, int number, int head,
                                   int h, Shared& shared) {
  const int lane = threadIdx.x % kWarp;
  double log_decay[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    float beta = 0;
    log_decay[i] = 0;
    if (c.live(t)) {
      const float* ba = a.net.ba.row(a.net.seqs.first[c.s] + c.row + t);
      beta = sigmoid(ba[head]);
      log_decay[i] =
          gdn_log_decay(ba[a.net.shape.value_heads + head], a.net.a_log[head], a.net.dt_bias[head]);
    }
    shared.beta[h][t] = beta;
  }
  double total = log_decay[0] + log_decay[1];
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const double before = __shfl_up_sync(kAll, total, offset);
    if (lane >= offset) total += before;
  }
  const double end = __shfl_sync(kAll, total, kWarp - 1);
  float* decays = a.tiles.decays + a.value_head(number, head) * 2 * kChunk;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const double sum = i == 0 ? total - log_decay[1] : total;
    const auto high = static_cast<float>(sum);
    shared.high[h][t] = high;
    shared.low[h][t] = static_cast<float>(sum - static_cast<double>(high));
    decays[t] = __expf(high);
    decays[kChunk + t] = __expf(static_cast<float>(end - sum));
  }
}

// Products of rows [m, m + 16) of `left` and rows [0, m + 16) of `right`.
__device__ inline void multiply_rows(const __half* left, const __half* right, int m,
                                     float (&c)[kChunk / 8][4]) {
  const uint32_t a_tile = shared_address(left), b_tile = shared_address(right);
#pragma unroll
  for (int k = 0; k < kGdnDim; k += 16) {
    uint32_t a[4], b[4];
    load_matrices(a, a_address<kGdnDim>(a_tile, m, k));
#pragma unroll
    for (int n = 0; n < kChunk; n += 16) {
      if (n > m) continue;
      load_matrices(b, b_address<kGdnDim>(b_tile, n, k));
      mma_halves(c[n / 8], a, b[0], b[1]);
      mma_halves(c[n / 8 + 1], a, b[2], b[3]);
    }
  }
}

__device__ inline float decay_between(const Shared& shared, int h, int t, int s) {
  return __expf((shared.high[h][t] - shared.high[h][s]) + (shared.low[h][t] - shared.low[h][s]));
}

// Aᵀ above the diagonal, from a warp's rows of k·k.
__device__ inline void write_system(const float (&c)[kChunk / 8][4], int m, int h, Shared& shared) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    if (n * 8 > m + 8) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = m + lane / 4 + i / 2 * 8, s = n * 8 + lane % 4 * 2 + i % 2;
      if (s < t) {
        shared.system[h][s][t] = shared.beta[h][t] * c[n][i] * decay_between(shared, h, t, s);
      }
    }
  }
}

// From a warp's rows of q·k; zero above the diagonal.
__device__ inline void write_mix(const float (&c)[kChunk / 8][4], int m, int h, __half* tile,
                                 const Shared& shared) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int t = m + lane / 4 + i / 2 * 8, s = n * 8 + lane % 4 * 2;
      const float low = s <= t ? c[n][i] * decay_between(shared, h, t, s) : 0.0f;
      const float high = s + 1 <= t ? c[n][i + 1] * decay_between(shared, h, t, s + 1) : 0.0f;
      *reinterpret_cast<uint32_t*>(tile + t * kChunk + s) = pack_halves(low, high);
    }
  }
}

// Column j of (1 + A)⁻¹, eight rows at a time. Columns of a warp are at least `begin`.
__device__ inline void invert_column(System& system, int j, int begin) {
  constexpr int kRows = 8;
#pragma unroll 1
  for (int t = begin; t < kChunk; t += kRows) {
    float x[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) x[i] = t + i == j ? 1.0f : 0.0f;
#pragma unroll 4
    for (int s = begin; s < t; ++s) {
      const float known = s >= j ? system[s][j] : 0.0f;
      const float4 a0 = load4(&system[s][t]), a1 = load4(&system[s][t + 4]);
      x[0] -= a0.x * known;
      x[1] -= a0.y * known;
      x[2] -= a0.z * known;
      x[3] -= a0.w * known;
      x[4] -= a1.x * known;
      x[5] -= a1.y * known;
      x[6] -= a1.z * known;
      x[7] -= a1.w * known;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int before = 0; before < i; ++before) {
        x[i] -= system[t + before][t + i] * x[before];
      }
      if (t + i >= j) system[t + i][j] = x[i];
    }
  }
}

// The inverse times diag(β), as halves.
__device__ inline void write_solve(const System& system, const float* beta, __half* tile) {
  constexpr int kSegments = kChunk * kChunk / 8;
  for (int i = threadIdx.x; i < kSegments; i += kThreads) {
    const int t = i / (kChunk / 8), s = i % (kChunk / 8) * 8;
    uint32_t halves[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const int at = s + 2 * u;
      halves[u] = pack_halves(at <= t ? system[t][at] * beta[at] : 0.0f,
                              at + 1 <= t ? system[t][at + 1] * beta[at + 1] : 0.0f);
    }
    *reinterpret_cast<uint4*>(tile + t * kChunk + s) =
        make_uint4(halves[0], halves[1], halves[2], halves[3]);
  }
}

__global__ void __launch_bounds__(kThreads, 2) prepare(ChunkArgs a) {
  start_next();
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int number = blockIdx.y, key_head = blockIdx.x, warp = threadIdx.x / kWarp;
  const int group = a.net.group();
  const ChunkRows chunk = find_chunk(a.net, number, shared.chunk);
  wait_for_earlier();
  if (chunk.s < 0) return;
  stage_all(a, chunk, number, key_head, shared);
  __syncthreads();

  float products[kChunk / 8][4] = {};  // warps 0…3: k·k, others: q·k
  const bool of_keys = warp < kWarps / 2;
  const int m = warp % (kWarps / 2) * 16;
  multiply_rows(of_keys ? shared.keys.k : shared.keys.q, shared.keys.k, m, products);
  __syncthreads();

  for (int base = 0; base < group; base += kHeads) {
    const int heads = min(kHeads, group - base), first = key_head * group + base;
    if (warp < heads) stage_gates(a, chunk, number, first + warp, warp, shared);
    __syncthreads();
    for (int h = 0; h < heads; ++h) {
      if (of_keys) {
        write_system(products, m, h, shared);
      } else {
        write_mix(products, m, h, a.tiles.mix + a.value_head(number, first + h) * kChunk * kChunk,
                  shared);
      }
    }
    __syncthreads();
    if (warp < 2 * heads) {
      invert_column(shared.system[warp / 2], warp % 2 * kWarp + threadIdx.x % kWarp,
                    warp % 2 * kWarp);
    }
    __syncthreads();
    for (int h = 0; h < heads; ++h) {
      write_solve(shared.system[h], shared.beta[h],
                  a.tiles.solve + a.value_head(number, first + h) * kChunk * kChunk);
    }
    __syncthreads();
  }
}

}  // namespace

void gdn_prepare(cudaStream_t stream, const ChunkArgs& a, int chunks) {
  static_assert(2 * kHeads <= kWarps);
  EXODE_CUDA_CHECK(cudaFuncSetAttribute(prepare, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        int{sizeof(Shared)}));
  const dim3 grid(static_cast<unsigned>(a.net.shape.key_heads), static_cast<unsigned>(chunks));
  launch_chained(stream, prepare, grid, kThreads, sizeof(Shared), a);
}

}  // namespace exode::cuda
