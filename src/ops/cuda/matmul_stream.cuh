// How the streamed matmul reads each weight layout: blocks of 64 bytes of a row, and the A operands
// of mma.m16n8k16 made from them. A lane is (g, t) = (lane / 4, lane % 4).
//
// The order of inputs inside an MMA is free as long as A and B agree, so packed codes are used as
// they lie and x is permuted once to match: of each 32 inputs of a block (a step), quad lane t
// takes 16 bytes of x, which feed two MMAs.
//
// A codec has: kInputs of a block; kGroups, scales of a block (0: none, and the codes are the
// values); kHasZeros; kTwoTiles, whether 9…16 rows have a kernel of their own.
#pragma once

#include "ops/cuda/launch.cuh"

namespace exode::cuda {

constexpr int kStrip = 16;   // outputs of one MMA
constexpr int kPair = 32;    // outputs that a warp works on together: two strips
constexpr int kRowTile = 8;  // rows of x of one MMA

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

struct Codec64 {
  static constexpr int kBlockBytes = 64;
  static constexpr int kDeep = 4, kShallow = 2;  // stages of a ring, by the shared memory there is
  struct Line {                                  // one lane's share of a weight row and block
    uint32_t word[4];
  };
  // Offset of 16-byte chunk `chunk` of row `row` in a stage.
  __device__ static int offset(int row, int chunk) { return row * kBlockBytes + chunk * 16; }
  __device__ static Line line(const uint8_t* stage, int row, int t) {
    const uint4 v = *reinterpret_cast<const uint4*>(stage + offset(row, t));
    return {{v.x, v.y, v.z, v.w}};
  }
};

// Nibbles of a word as halves of code − 8, without moving bits: 0 and 4, or 1 and 5.
__device__ inline uint32_t even_nibbles(uint32_t word) {  // 1024 + code
  return bits_of(__hsub2(halves_of(masked_halves<0x000f000f>(word)), __float2half2_rn(1032.0f)));
}
__device__ inline uint32_t odd_nibbles(uint32_t word) {  // 1024 + 16 code
  return bits_of(__hfma2(halves_of(masked_halves<0x00f000f0>(word)), __float2half2_rn(0.0625f),
                         __float2half2_rn(-72.0f)));
}

// kInt4Group with groups of whole blocks: nibbles p and p + 4 of a word go together.
struct Int4Codec : Codec64 {
  static constexpr int kInputs = kInt4Block, kGroups = 1;
  static constexpr bool kHasZeros = true, kTwoTiles = true;
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
  // MMA `half` of a step.
  __device__ static Operand operand(const Line& low, const Line& high, int step, int half) {
    const uint32_t a = low.word[step] >> (8 * half), b = high.word[step] >> (8 * half);
    return {even_nibbles(a), even_nibbles(b), odd_nibbles(a), odd_nibbles(b)};
  }
};

// kInt4Group with groups of 32 or 64: an MMA must stay inside 32 inputs, so the same nibbles of two
// words go together, and a step is nibbles 2 · step and 2 · step + 1 of all words.
template <int GROUP>
struct Int4GroupCodec : Codec64 {
  static constexpr int kInputs = kInt4Block, kGroups = kInt4Block / GROUP;
  static constexpr bool kHasZeros = true, kTwoTiles = false;
  __device__ static int input(int task, int h) { return task / 4 * 32 + 16 * h + task % 4 * 4; }
  __device__ static void store(__half* block, int task, float4 a, float4 b) {
    *reinterpret_cast<uint4*>(block + task * 8) =
        make_uint4(bits_of(finite_halves(a.x, a.y)), bits_of(finite_halves(b.x, b.y)),
                   bits_of(finite_halves(a.z, a.w)), bits_of(finite_halves(b.z, b.w)));
  }
  __device__ static Operand operand(const Line& low, const Line& high, int step, int half) {
    const uint32_t a = joined(low, step, half), b = joined(high, step, half);
    return {even_nibbles(a), even_nibbles(b), odd_nibbles(a), odd_nibbles(b)};
  }

 private:
  __device__ static uint32_t joined(const Line& line, int step, int half) {
    const uint32_t both =
        __byte_perm(line.word[2 * half], line.word[2 * half + 1], step < 2 ? 0x5410 : 0x7632);
    return both >> (step % 2 * 8);
  }
};

// Codes in the order of inputs: eight neighbours of x stay together.
struct InOrderCodec : Codec64 {
  static constexpr bool kHasZeros = false, kTwoTiles = false;
  __device__ static int input(int task, int h) { return task * 8 + h * 4; }

 protected:
  __device__ static void store_at(__half* to, float4 a, float4 b) {
    *reinterpret_cast<uint4*>(to) =
        make_uint4(bits_of(finite_halves(a.x, a.y)), bits_of(finite_halves(a.z, a.w)),
                   bits_of(finite_halves(b.x, b.y)), bits_of(finite_halves(b.z, b.w)));
  }
};

// kInt8Group.
struct Int8Codec : InOrderCodec {
  static constexpr int kInputs = 64, kGroups = 1;
  __device__ static void store(__half* block, int task, float4 a, float4 b) {
    store_at(block + task % 2 * 32 + task / 2 * 8, a, b);
  }
  __device__ static Operand operand(const Line& low, const Line& high, int step, int half) {
    const uint32_t a = low.word[2 * step + half], b = high.word[2 * step + half];
    return {halves<0x4140>(a), halves<0x4140>(b), halves<0x4342>(a), halves<0x4342>(b)};
  }

 private:
  // Two codes under the exponent of 1024, less 1024 + 128.
  template <uint32_t SELECTOR>
  __device__ static uint32_t halves(uint32_t word) {
    const uint32_t raised = __byte_perm(word, 0x64646464u, SELECTOR);
    return bits_of(__hsub2(halves_of(raised), __float2half2_rn(1024.0f + kInt8Zero)));
  }
};

// kDense in 16 bits; bf16 becomes f16.
template <bool BF16>
struct Dense16Codec : InOrderCodec {
  static constexpr int kInputs = 32, kGroups = 0;
  __device__ static void store(__half* block, int task, float4 a, float4 b) {
    store_at(block + task * 8, a, b);
  }
  __device__ static Operand operand(const Line& low, const Line& high, int, int half) {
    return {value(low.word[2 * half]), value(high.word[2 * half]), value(low.word[2 * half + 1]),
            value(high.word[2 * half + 1])};
  }

 private:
  __device__ static uint32_t value(uint32_t word) {
    if constexpr (!BF16) return word;
    return bits_of(finite_halves(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)));
  }
};

}  // namespace exode::cuda
