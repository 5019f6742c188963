// The gemm of compute capability 9.0: two warpgroups of weights in registers against a ring of
// blocks of x in shared memory. Weights become halves while the MMAs before are running.
//
// One CTA a multiprocessor works through pieces of tiles: a tile of each whole wave, then its equal
// share of the tiles that are left, one to two waves of them. Where a share begins inside a tile,
// the CTA before has summed the inputs up to there and hands its sums over; it does that piece
// first and the one that it takes over last, so nobody waits. Sums stay in the order of K.
#include <algorithm>

#include "ops/cuda/gemm_kernels.cuh"
#include "ops/cuda/wgmma.cuh"

namespace exode::cuda::gemm {
namespace {

constexpr int kThreads = kWarps * kWarp;
constexpr int kBlockChunks = kBlock / kChunk;
constexpr int kChunkMmas = kChunk / 16;
constexpr int kAhead = 3;  // MMAs of a strip that may be running
constexpr int kLag = 3;    // blocks from the one that is filled back to the one that was read there

struct Piece {
  int tile, begin, end;  // blocks
};

// The pieces of a CTA.
struct Share {
  int cta, ctas, blocks, waves;
  int head_tile, head_end;    // handed to the next CTA; none if head_end is 0
  int tail_tile, tail_begin;  // taken over; none if tail_begin is 0
  int whole_first, whole;     // tiles between them

  __device__ Share(int tiles, int tile_blocks)
      : cta(blockIdx.x), ctas(gridDim.x), blocks(tile_blocks), waves(max(tiles / ctas - 1, 0)) {
    const int first = waves * ctas;
    const int64_t total = int64_t{tiles - first} * blocks;
    const auto begin = static_cast<int>(total * cta / ctas);
    const auto end = static_cast<int>(total * (cta + 1) / ctas);
    tail_tile = first + begin / blocks;
    tail_begin = begin % blocks;
    head_tile = first + end / blocks;
    head_end = end % blocks;
    whole_first = tail_tile + (tail_begin > 0 ? 1 : 0);
    whole = head_tile - whole_first;
  }
  __device__ int count() const {
    return waves + whole + (head_end > 0 ? 1 : 0) + (tail_begin > 0 ? 1 : 0);
  }
  __device__ Piece piece(int i) const {
    if (i < waves) return {i * ctas + cta, 0, blocks};
    i -= waves;
    if (head_end > 0) {
      if (i == 0) return {head_tile, 0, head_end};
      --i;
    }
    if (i < whole) return {whole_first + i, 0, blocks};
    return {tail_tile, tail_begin, blocks};
  }
};

// Tiles of one group of weights follow each other: they are read together.
struct Place {
  int first_token, first_output;
};
template <int TOKENS, int OUTPUTS>
__device__ Place place_of(const Args& a, int tile) {
  const int token_tiles = (a.tokens + TOKENS - 1) / TOKENS;
  return {tile % token_tiles * TOKENS, tile / token_tiles * OUTPUTS};
}

template <int TOKENS, int STAGES>
struct Ring {
  static constexpr int kChunkBytes = TOKENS * kLineBytes;
  static constexpr int kStageBytes = kBlockChunks * kChunkBytes;
  static constexpr int kBarrierBytes = 2 * STAGES * static_cast<int>(sizeof(uint64_t));
  static constexpr int kBytes = STAGES * kStageBytes + kBarrierBytes;
  uint8_t* memory;
  uint64_t *full, *empty;
  __device__ explicit Ring(uint8_t* shared)
      : memory(shared),
        full(reinterpret_cast<uint64_t*>(shared + STAGES * kStageBytes)),
        empty(full + STAGES) {}

  __device__ void init() const {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(full + s, 1);
      barrier_init(empty + s, kWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ void fill(const Args& a, int step, int block, int first_token) const {
    const int stage = step % STAGES, round = step / STAGES;
    if (round > 0) barrier_wait(empty + stage, (round - 1) % 2);
    barrier_expect(full + stage, kStageBytes);
#pragma unroll
    for (int i = 0; i < kBlockChunks; ++i) {
      const int64_t line = int64_t{block * kBlockChunks + i} * a.tokens_padded + first_token;
      copy_bulk(memory + stage * kStageBytes + i * kChunkBytes, a.x + line * kLineBytes,
                kChunkBytes, full + stage);
    }
  }
};

// What is copied next, block after block of the pieces.
struct Cursor {
  int index = 0, block = 0, end = 0, first_token = 0, step = 0;

  template <int TOKENS, int OUTPUTS, int STAGES>
  __device__ void fill(const Args& a, const Share& share, const Ring<TOKENS, STAGES>& ring) {
    if (block == end) {
      if (index == share.count()) return;
      const Piece piece = share.piece(index++);
      block = piece.begin;
      end = piece.end;
      first_token = place_of<TOKENS, OUTPUTS>(a, piece.tile).first_token;
    }
    ring.fill(a, step++, block++, first_token);
  }
};

// Sums on their way from a CTA to the next: of every warp, then a flag.
template <int COUNT>
struct Handover {
  float4* sums;  // [COUNT / 4][threads] of the CTA that hands over
  int* flag;     // of the warp
  __device__ Handover(const Args& a, int cta)
      : sums(reinterpret_cast<float4*>(a.handover) + int64_t{cta} * COUNT / 4 * kThreads +
             threadIdx.x),
        flag(a.flags + cta * kWarps + threadIdx.x / kWarp) {}

  __device__ void give(const float* c) const {
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
      __stcg(sums + i * kThreads, make_float4(c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3]));
    }
    __threadfence();
    __syncwarp();
    if (threadIdx.x % kWarp == 0) {
      asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
    }
  }
  __device__ void take(float* c) const {
    if (threadIdx.x % kWarp == 0) {
      int there;
      do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
      } while (there == 0);
      *flag = 0;
    }
    __syncwarp();
    __threadfence();
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
      const float4 v = __ldcg(sums + i * kThreads);
      c[4 * i] = v.x;
      c[4 * i + 1] = v.y;
      c[4 * i + 2] = v.z;
      c[4 * i + 3] = v.w;
    }
  }
};

template <class Codec, int STRIPS, int TOKENS, int STAGES, bool SWIGLU>
__global__ void __launch_bounds__(kThreads, 1) wgmma_gemm(Args a, int tiles) {
  using XRing = Ring<TOKENS, STAGES>;
  constexpr int kOutputs = kTileOutputs<STRIPS, SWIGLU>, kTiles = TOKENS / kRowTile;
  extern __shared__ __align__(1024) uint8_t shared[];
  start_next();
  const XRing ring(shared);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const Share share(tiles, a.w.blocks);
  const uint64_t first = descriptor(shared_address(shared));
  Cursor cursor;
  wait_for_earlier();
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES - kLag; ++i) {
      cursor.fill<TOKENS, kOutputs, STAGES>(a, share, ring);
    }
  }
  int step = 0;
  for (int i = 0; i < share.count(); ++i) {
    const Piece piece = share.piece(i);
    const Place place = place_of<TOKENS, kOutputs>(a, piece.tile);
    const int output = place.first_output + warp * kWarpOutputs<STRIPS, SWIGLU>;
    WeightStream<Codec, STRIPS, SWIGLU> weights(a, output, piece.begin);
    float c[STRIPS][kTiles][4] = {};
    if (piece.begin > 0) {
      Handover<STRIPS * kTiles * 4>(a, share.cta - 1).take(&c[0][0][0]);
    }
    pin(c);
    int block = piece.begin;
    do {
      // The MMAs that may be running are of the block before.
      if (step > 1 && lane == 0) barrier_arrive(ring.empty + (step - 2) % STAGES);
      if (threadIdx.x == 0) cursor.fill<TOKENS, kOutputs, STAGES>(a, share, ring);
      __syncwarp();
      const int stage = step % STAGES;
      barrier_wait(ring.full + stage, step / STAGES % 2);
#pragma unroll
      for (int m = 0; m < kBlockMmas; ++m) {
        weights.advance(a, block, piece.end, m);
        Operand operand[STRIPS];
#pragma unroll
        for (int s = 0; s < STRIPS; ++s) {
          operand[s] = weights.operand(s, m);
          pin(operand[s]);
        }
        const uint64_t b = first + (stage * XRing::kStageBytes +
                                    m / kChunkMmas * XRing::kChunkBytes + m % kChunkMmas * 32) /
                                       16;
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < STRIPS; ++s) wgmma(c[s], operand[s], b);
        wgmma_commit();
        wgmma_wait<kAhead>();
      }
      ++step;
    } while (++block < piece.end);
    wgmma_wait<0>();
    pin(c);
    if (piece.end < a.w.blocks) {
      Handover<STRIPS * kTiles * 4>(a, share.cta).give(&c[0][0][0]);
    } else {
      store_tile<Codec, STRIPS, SWIGLU>(a, output, place.first_token, c);
    }
  }
}

template <class Codec, int STRIPS, int TOKENS, int STAGES, bool SWIGLU>
void run(cudaStream_t stream, const Args& a) {
  constexpr int kShared = Ring<TOKENS, STAGES>::kBytes;
  static_assert(kWgmmaHandoverBytes >= kThreads * STRIPS * TOKENS / kRowTile * 16);
  const auto kernel = wgmma_gemm<Codec, STRIPS, TOKENS, STAGES, SWIGLU>;
  EXODE_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  const int tiles = tiles_of<STRIPS, TOKENS, SWIGLU>(a);
  launch_chained(stream, kernel, static_cast<unsigned>(std::min(tiles, a.multiprocessors)),
                 kThreads, kShared, a, tiles);
}

// The largest tile of which every multiprocessor gets one.
template <class Codec, bool SWIGLU>
void run_shape(cudaStream_t stream, const Args& a) {
  if constexpr (std::is_same_v<Codec, Int4<false, 1>>) {
    if (tiles_of<2, 128, SWIGLU>(a) >= a.multiprocessors) {
      return run<Codec, 2, 128, 6, SWIGLU>(stream, a);
    }
    if (tiles_of<2, 64, SWIGLU>(a) >= a.multiprocessors) {
      return run<Codec, 2, 64, 8, SWIGLU>(stream, a);
    }
  } else if (tiles_of<1, 128, SWIGLU>(a) >= a.multiprocessors) {
    return run<Codec, 1, 128, 6, SWIGLU>(stream, a);
  }
  run<Codec, 1, 64, 8, SWIGLU>(stream, a);
}

}  // namespace

template <class Codec>
void run_wgmma(cudaStream_t stream, const Args& a, bool swiglu) {
  if (swiglu) return run_shape<Codec, true>(stream, a);
  run_shape<Codec, false>(stream, a);
}

template void run_wgmma<Int4<false, 1>>(cudaStream_t, const Args&, bool);
template void run_wgmma<Int4<true, 1>>(cudaStream_t, const Args&, bool);
template void run_wgmma<Int4<false, 4>>(cudaStream_t, const Args&, bool);
template void run_wgmma<Int4<true, 4>>(cudaStream_t, const Args&, bool);
template void run_wgmma<Fp8>(cudaStream_t, const Args&, bool);
template void run_wgmma<Dense<__half>>(cudaStream_t, const Args&, bool);
template void run_wgmma<Dense<__nv_bfloat16>>(cudaStream_t, const Args&, bool);

}  // namespace exode::cuda::gemm
