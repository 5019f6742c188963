// The gemm on mma.sync: weights are the A operand, straight from memory into the registers of the
// one warp that needs them; tokens are the B operand, from a ring of chunks of 64 inputs.
#include "ops/cuda/gemm_kernels.cuh"

namespace exode::cuda::gemm {
namespace {

constexpr int kThreads = kWarps * kWarp;
constexpr int kStages = 4;
constexpr int kChunkMmas = kChunk / 16;

template <int TOKENS>
struct Chunks {
  static constexpr int kBytes = TOKENS * kLineBytes;
  uint8_t* memory;
  const uint8_t* x;     // of the thread in chunk 0
  int64_t chunk_bytes;  // between chunks
  int count;

  __device__ void fill(int chunk) const {
    if (chunk < count) {
      const uint8_t* from = x + chunk * chunk_bytes;
      const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(memory)) +
                      chunk % kStages * kBytes + threadIdx.x * 16;
#pragma unroll
      for (int i = 0; i < kBytes / (kThreads * 16); ++i) {
        asm volatile(
            "cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to + i * kThreads * 16),
            "l"(from + i * kThreads * 16)
            : "memory");
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
};

struct Pieces {  // B operands of one MMA of 16 tokens
  uint32_t low[2], high[2];
};

// `line` is the lane's of the tile; `piece` tells the 16 bytes of it.
__device__ inline Pieces load_pieces(uint32_t line, int token, int piece) {
  Pieces b;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b.low[0]), "=r"(b.low[1]), "=r"(b.high[0]), "=r"(b.high[1])
               : "r"(line + ((piece ^ (token % 8)) * 16))
               : "memory");
  return b;
}

template <class Codec, int STRIPS, int TOKENS, bool SWIGLU>
__global__ void __launch_bounds__(kThreads, 1) mma_gemm(Args a) {
  constexpr int kTiles = TOKENS / kRowTile;
  extern __shared__ __align__(1024) uint8_t shared[];
  start_next();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int first_token = blockIdx.x * TOKENS;
  const int output = (blockIdx.y * kWarps + warp) * kWarpOutputs<STRIPS, SWIGLU>;
  WeightStream<Codec, STRIPS, SWIGLU> weights(a, output, 0);
  const Chunks<TOKENS> chunks{shared, a.x + int64_t{first_token} * kLineBytes + threadIdx.x * 16,
                              int64_t{a.tokens_padded} * kLineBytes,
                              a.w.blocks * (kBlock / kChunk)};
  wait_for_earlier();
#pragma unroll
  for (int i = 0; i + 1 < kStages; ++i) chunks.fill(i);

  // Lanes 8 i … 8 i + 7 address matrix i: tokens 0…7 or 8…15, first or second piece.
  const int token = lane % 8 + lane / 16 * 8;
  const uint32_t line =
      static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + token * kLineBytes;
  float c[STRIPS][kTiles][4] = {};
  for (int block = 0; block < a.w.blocks; ++block) {
#pragma unroll
    for (int m = 0; m < kBlockMmas; ++m) {
      const int chunk = block * (kBlock / kChunk) + m / kChunkMmas;
      if (m % kChunkMmas == 0) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
        __syncthreads();
        chunks.fill(chunk + kStages - 1);
      }
      weights.advance(a, block, a.w.blocks, m);
      Operand operand[STRIPS];
#pragma unroll
      for (int s = 0; s < STRIPS; ++s) operand[s] = weights.operand(s, m);
      const uint32_t stage = line + chunk % kStages * Chunks<TOKENS>::kBytes;
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        const Pieces b = load_pieces(stage + n * kRowTile * kLineBytes, token,
                                     m % kChunkMmas * 2 + lane / 8 % 2);
#pragma unroll
        for (int s = 0; s < STRIPS; ++s) {
          mma(c[s][n], operand[s], b.low[0], b.low[1]);
          mma(c[s][n + 1], operand[s], b.high[0], b.high[1]);
        }
      }
    }
  }
  store_tile<Codec, STRIPS, SWIGLU>(a, output, first_token, c);
}

template <class Codec, int STRIPS, int TOKENS, bool SWIGLU>
void run(cudaStream_t stream, const Args& a) {
  constexpr int kShared = kStages * Chunks<TOKENS>::kBytes;
  const auto kernel = mma_gemm<Codec, STRIPS, TOKENS, SWIGLU>;
  EXODE_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  const dim3 grid(blocks_for(a.tokens, TOKENS),
                  blocks_for(a.outputs, kTileOutputs<STRIPS, SWIGLU>));
  launch_chained(stream, kernel, grid, kThreads, kShared, a);
}

// The largest tile of which every multiprocessor gets one.
template <class Codec, bool SWIGLU>
void run_shape(cudaStream_t stream, const Args& a) {
  if constexpr (std::is_same_v<Codec, Int4<false, 1>>) {
    if (tiles_of<2, 128, SWIGLU>(a) >= a.multiprocessors) {
      return run<Codec, 2, 128, SWIGLU>(stream, a);
    }
  }
  if (tiles_of<1, 128, SWIGLU>(a) >= a.multiprocessors) {
    return run<Codec, 1, 128, SWIGLU>(stream, a);
  }
  run<Codec, 1, 64, SWIGLU>(stream, a);
}

}  // namespace

template <class Codec>
void run_mma(cudaStream_t stream, const Args& a, bool swiglu) {
  if (swiglu) return run_shape<Codec, true>(stream, a);
  run_shape<Codec, false>(stream, a);
}

template void run_mma<Int4<false, 1>>(cudaStream_t, const Args&, bool);
template void run_mma<Int4<true, 1>>(cudaStream_t, const Args&, bool);
template void run_mma<Int4<false, 4>>(cudaStream_t, const Args&, bool);
template void run_mma<Int4<true, 4>>(cudaStream_t, const Args&, bool);
template void run_mma<Fp8>(cudaStream_t, const Args&, bool);
template void run_mma<Dense<__half>>(cudaStream_t, const Args&, bool);
template void run_mma<Dense<__nv_bfloat16>>(cudaStream_t, const Args&, bool);

}  // namespace exode::cuda::gemm
