// What both gemms share: the arguments, the weights that a warp streams through registers, and the
// store of a tile.
//
// A warp owns STRIPS strips of 16 weight rows and all tokens of its CTA's tile. The C elements of a
// lane, 2 · STRIPS rows a token, are neighbours in memory: row g + 8 h of strip s is output
// 2 STRIPS g + 2 s + h of the warp. For SwiGLU h tells the gate row from the up row of one output.
#pragma once

#include "ops/cuda/gemm_codec.cuh"

namespace exode::cuda::gemm {

constexpr int kWarps = 8;
// Packed x: [chunks of 64 inputs][tokens padded][128 bytes], 16-byte pieces of a line exchanged by
// the token's last three bits, as shared memory wants them.
constexpr int kChunk = 64;
constexpr int kLineBytes = kChunk * 2;
constexpr int kTokenPad = 128;

constexpr int kWgmmaHandoverBytes = 128 * 1024;

struct Args {
  Weights w;
  const uint8_t* x;
  Rows out;
  int tokens, tokens_padded, outputs;
  bool wide_stores;  // rows of out and their parts are aligned for vectors
  // For sums that one CTA hands to the next: kWgmmaHandoverBytes and a zero flag a warp for each
  // multiprocessor.
  std::byte* handover;
  int* flags;
  int multiprocessors;
};

template <int STRIPS, bool SWIGLU>
inline constexpr int kWarpOutputs = SWIGLU ? 8 * STRIPS : 16 * STRIPS;
template <int STRIPS, bool SWIGLU>
inline constexpr int kTileOutputs = kWarpOutputs<STRIPS, SWIGLU>* kWarps;

template <int STRIPS, int TOKENS, bool SWIGLU>
int tiles_of(const Args& a) {
  return static_cast<int>(blocks_for(a.tokens, TOKENS) *
                          blocks_for(a.outputs, kTileOutputs<STRIPS, SWIGLU>));
}

// The weights of a warp, one block ahead of their use.
template <class Codec, int STRIPS, bool SWIGLU>
class WeightStream {
 public:
  __device__ WeightStream(const Args& a, int first_output, int block) {
    const int lane = threadIdx.x % kWarp, g = lane / 4;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int s = i / 2, h = i % 2;
      const int output = first_output + (SWIGLU ? STRIPS * g + s : 2 * STRIPS * g + i);
      const int r = min(output, a.outputs - 1) + (SWIGLU ? h * a.outputs : 0);
      row_[i] = Codec::row(a.w, r, lane % 4);
      raw_[i] = Codec::raw(a.w, row_[i], block);
#pragma unroll
      for (int u = 0; u < Codec::kUnits; ++u) line_[u][i] = Codec::line(a.w, row_[i], block, u);
    }
  }
  // Before MMA `mma` of block `block` of those up to `end`; `mma` is a constant to the compiler.
  __device__ void advance(const Args& a, int block, int end, int mma) {
    if (mma % Codec::kUnitMmas != 0) return;
    const int unit = mma / Codec::kUnitMmas;
    const int next = min(block + 1, end - 1);  // no branch: it would break up running MMAs
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      now_[i] = line_[unit][i];
      line_[unit][i] = Codec::line(a.w, row_[i], next, unit);
      if (mma != 0) continue;
      factors_[i] = Codec::factors(raw_[i]);
      raw_[i] = Codec::raw(a.w, row_[i], next);
    }
  }
  __device__ Operand operand(int strip, int mma) const {
    return Codec::operand(now_[2 * strip], now_[2 * strip + 1], factors_[2 * strip],
                          factors_[2 * strip + 1], mma % Codec::kUnitMmas);
  }

 private:
  static constexpr int kRows = 2 * STRIPS;
  typename Codec::Row row_[kRows];
  typename Codec::Raw raw_[kRows];
  typename Codec::Factors factors_[kRows];
  uint4 line_[Codec::kUnits][kRows], now_[kRows];
};

template <int COUNT>
__device__ void store_outputs(float* to, const float (&v)[COUNT], int left, bool wide) {
  if (wide && left >= COUNT) {
    if constexpr (COUNT == 4) {
      *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
      return;
    } else if constexpr (COUNT == 2) {
      *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    if (i < left) to[i] = v[i];
  }
}

// c[strip][8 tokens][element of C].
template <class Codec, int STRIPS, bool SWIGLU, int TILES>
__device__ void store_tile(const Args& a, int first_output, int first_token,
                           const float (&c)[STRIPS][TILES][4]) {
  const int lane = threadIdx.x % kWarp, g = lane / 4;
  constexpr int kCount = SWIGLU ? STRIPS : 2 * STRIPS;
  const int output = first_output + kCount * g, left = a.outputs - output;
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int token = first_token + n * kRowTile + lane % 4 * 2 + e;
      if (token >= a.tokens) continue;
      float v[kCount];
#pragma unroll
      for (int s = 0; s < STRIPS; ++s) {
        const float low = c[s][n][e] * Codec::kOutputScale;
        const float high = c[s][n][2 + e] * Codec::kOutputScale;
        if constexpr (SWIGLU) {
          v[s] = silu(low) * high;
        } else {
          v[2 * s] = low;
          v[2 * s + 1] = high;
        }
      }
      store_outputs(a.out.row(token) + output, v, left, a.wide_stores);
    }
  }
}

}  // namespace exode::cuda::gemm
