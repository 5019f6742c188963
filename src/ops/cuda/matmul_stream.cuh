// How the streamed matmul reads each weight layout: sizes of a block of 128 inputs, and the A
// operands of mma.m16n8k16 made from it. A lane is (g, t) = (lane / 4, lane % 4).
//
// The order of inputs inside an MMA is free as long as A and B agree, so packed codes are used as
// they lie and x is permuted once to match: of each block, quad lane t takes 16 bytes of x for
// every `word` 0…3, which feed two MMAs.
#pragma once

#include "ops/cuda/launch.cuh"

namespace exode::cuda {

constexpr int kStrip = 16;   // outputs of one MMA
constexpr int kPair = 32;    // outputs that a warp works on together: two strips
constexpr int kRowTile = 8;  // rows of x of one MMA
constexpr int kBlock = kInt4Block;

struct Operand {  // of one MMA: rows g and g + 8, inputs in halves
  uint32_t a0, a1, a2, a3;
};

__device__ inline void mma(float (&c)[4], const Operand& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "r"(b0), "r"(b1));
}

__device__ inline uint32_t bits_of(__half2 v) { return *reinterpret_cast<const uint32_t*>(&v); }
__device__ inline __half2 halves_of(uint32_t v) { return *reinterpret_cast<const __half2*>(&v); }

// Beyond the range of halves the nearest one stands in: an infinity would spoil whole rows.
__device__ inline __half2 finite_halves(float a, float b) {
  constexpr float kMax = 65504.0f;
  return __floats2half2_rn(fminf(fmaxf(a, -kMax), kMax), fminf(fmaxf(b, -kMax), kMax));
}

template <uint32_t MASK>
__device__ uint32_t masked_halves(uint32_t word) {  // (word & MASK) | exponent of 1024
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "n"(MASK), "n"(0x64006400));
  return out;
}

// kInt4Group: nibbles p and p + 4 of a word become one half2 of code − 8 without moving bits.
struct Int4Codec {
  static constexpr int kBlockBytes = 64;
  static constexpr bool kHasZeros = true;
  static constexpr int kDeep = 4, kShallow = 2;  // stages of a ring, by the shared memory there is
  struct Line {                                  // one lane's share of a weight row and block
    uint32_t word[4];
  };
  // Staging task `task` of a block of x takes eight inputs: four from input(task, 0), four from
  // input(task, 1).
  __device__ static int input(int task, int h) { return 16 * (task % 4 + 4 * h) + task / 4 * 4; }
  __device__ static void store(__half* block, int task, float4 a, float4 b) {
    auto* to = reinterpret_cast<__half2*>(block + task / 4 * 8 + task % 4 * 2);
    to[0] = finite_halves(a.x, b.x);
    to[16] = finite_halves(a.y, b.y);
    to[32] = finite_halves(a.z, b.z);
    to[48] = finite_halves(a.w, b.w);
  }
  // Offset of 16-byte chunk `chunk` of row `row` in a stage.
  __device__ static int offset(int row, int chunk) { return row * kBlockBytes + chunk * 16; }
  __device__ static Line line(const uint8_t* stage, int row, int t) {
    const uint4 v = *reinterpret_cast<const uint4*>(stage + offset(row, t));
    return {{v.x, v.y, v.z, v.w}};
  }
  // MMA `half` of x word `word`.
  __device__ static Operand operand(const Line& low, const Line& high, int word, int half) {
    const uint32_t a = low.word[word] >> (8 * half), b = high.word[word] >> (8 * half);
    return {even(a), even(b), odd(a), odd(b)};
  }

 private:
  __device__ static uint32_t even(uint32_t word) {  // 1024 + code
    return bits_of(__hsub2(halves_of(masked_halves<0x000f000f>(word)), __float2half2_rn(1032.0f)));
  }
  __device__ static uint32_t odd(uint32_t word) {  // 1024 + 16 code
    return bits_of(__hfma2(halves_of(masked_halves<0x00f000f0>(word)), __float2half2_rn(0.0625f),
                           __float2half2_rn(-72.0f)));
  }
};

}  // namespace exode::cuda
