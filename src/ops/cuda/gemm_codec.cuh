// How a gemm reads each weight layout: 16 bytes of a weight row at a time, and the A operands of
// m16n8k16 made from them, scaled. A lane is (g, t) = (lane / 4, lane % 4).
//
// A block of 128 inputs of a row is kUnits lines of 64 bytes, 16 for each t; a line feeds kUnitMmas
// MMAs. The order of inputs inside a block is the codec's own: half `place(k)` of a block of packed
// x is its input k. A task is eight inputs of x, two times four from input(task, half): together
// they are four pairs of neighbouring halves.
#pragma once

#include "ops/cuda/matmul_stream.cuh"

namespace exode::cuda::gemm {

constexpr int kBlock = kInt4Block;  // inputs
constexpr int kBlockMmas = kBlock / 16;
constexpr int kBlockTasks = kBlock / 8;

// Weights count this many times in the MMAs, so that small scales are no subnormal halves.
constexpr float kLift = 64.0f;

struct Weights {  // of less than 4 GiB
  const uint8_t* codes;
  const float* scales;
  const uint8_t* zeros;
  uint32_t row_bytes, scale_stride, zero_stride;
  int code_bytes;  // of a row, without padding between rows
  int strip, rows, blocks, group, groups;
};

__device__ inline uint4 load_line(const uint8_t* from) {
  return __ldg(reinterpret_cast<const uint4*>(from));
}
__device__ inline uint32_t word_of(const uint4& line, int i) { return (&line.x)[i]; }

struct LineRow {  // a row of consecutive codes
  uint32_t codes;
  int first;  // of the lane
  __device__ static LineRow of(const Weights& w, int r, int t) { return {r * w.row_bytes, t * 16}; }
  // Past the end x is zero and any codes do.
  __device__ uint4 line(const Weights& w, int at) const {
    at += first;
    return load_line(w.codes + codes + static_cast<uint32_t>(at < w.code_bytes ? at : 0));
  }
};

struct InOrder {  // pairs of x are neighbours in K
  __device__ static float2 pair(const float4& a, const float4& b, int i) {
    const float4& v = i < 2 ? a : b;
    return i % 2 == 0 ? make_float2(v.x, v.y) : make_float2(v.z, v.w);
  }
  __device__ static int input(int task, int half) { return 8 * task + 4 * half; }
  __device__ static int pair_input(int task, int i) { return 8 * task + 2 * i; }
};

// kInt4Group. Nibbles p and p + 4 of a word become one half2 without moving bits. GROUPS is the
// number of scales in a block: one, or (of groups of 32 and 64) four quarters.
template <bool ZEROS, int GROUPS>
struct Int4 {
  static constexpr int kUnits = 1, kUnitMmas = 8;
  static constexpr int kBlockBytes = 64;
  static constexpr float kOutputScale = 1.0f / kLift;

  struct Raw {
    float scale[GROUPS];
    uint8_t zero[ZEROS ? GROUPS : 1];
  };
  struct Factors {
    static constexpr int kCount = GROUPS == 1 ? 1 : 2;
    __half2 scale[kCount];
    __half2 zero[kCount];  // 1024 + zero
  };
  struct Row {
    uint32_t codes, scale, zero;
  };

  __device__ static Row row(const Weights& w, int r, int t) {
    const uint32_t in_strip = r & (w.strip - 1), top = r - in_strip;
    return {top * w.row_bytes + in_strip * kBlockBytes + t * 16, top * w.scale_stride + in_strip,
            top * w.zero_stride + in_strip};
  }
  __device__ static uint4 line(const Weights& w, const Row& row, int block, int) {
    return load_line(w.codes + row.codes + static_cast<uint32_t>(block * w.strip * kBlockBytes));
  }
  __device__ static Raw raw(const Weights& w, const Row& row, int block) {
    Raw out;
#pragma unroll
    for (int i = 0; i < GROUPS; ++i) {
      const int k = block * kBlock + i * (kBlock / GROUPS);
      const int at = min(k / w.group, w.groups - 1) * w.strip;
      out.scale[i] = __ldg(w.scales + row.scale + at);
      if constexpr (ZEROS) out.zero[i] = __ldg(w.zeros + row.zero + at);
    }
    return out;
  }
  // Pair 0 holds inputs of quarters 0 and 2, pair 1 of 1 and 3.
  __device__ static Factors factors(const Raw& raw) {
    Factors f;
#pragma unroll
    for (int i = 0; i < Factors::kCount; ++i) {
      const int low = GROUPS == 1 ? 0 : i, high = GROUPS == 1 ? 0 : i + 2;
      f.scale[i] = finite_halves(raw.scale[low] * kLift, raw.scale[high] * kLift);
      if constexpr (ZEROS) {
        f.zero[i] = __halves2half2(__int2half_rn(1024 + raw.zero[low]),
                                   __int2half_rn(1024 + raw.zero[high]));
      }
    }
    return f;
  }
  __device__ static Operand operand(const uint4& low, const uint4& high, const Factors& low_f,
                                    const Factors& high_f, int mma) {
    const int word = mma / 2, half = mma % 2, shift = 8 * half;
    const uint32_t a = word_of(low, word) >> shift, b = word_of(high, word) >> shift;
    const int f = GROUPS == 1 ? 0 : half;
    return {even(a, low_f, f), even(b, high_f, f), odd(a, low_f, f), odd(b, high_f, f)};
  }

  // Input 16 p + 4 t + word: pair p % 4 of quarters p / 4, MMA 2 word + p % 4 / 2.
  __device__ static int place(int k) {
    const int p = k / 16, t = k % 16 / 4, word = k % 4;
    return (2 * word + p % 4 / 2) * 16 + p % 2 * 8 + 2 * t + p / 4;
  }
  __device__ static int input(int task, int half) {
    return 16 * (task / 4 + 4 * half) + task % 4 * 4;
  }
  __device__ static int pair_input(int task, int i) { return input(task, 0) + i; }
  __device__ static float2 pair(const float4& a, const float4& b, int i) {
    return make_float2((&a.x)[i], (&b.x)[i]);
  }

 private:
  __device__ static uint32_t even(uint32_t word, const Factors& f, int i) {
    const __half2 code = halves_of(masked_halves<0x000f000f>(word));  // 1024 + code
    const __half2 zero = ZEROS ? f.zero[i] : __float2half2_rn(1032.0f);
    return bits_of(__hmul2(__hsub2(code, zero), f.scale[i]));
  }
  __device__ static uint32_t odd(uint32_t word, const Factors& f, int i) {
    if constexpr (ZEROS) return even(word >> 4, f, i);
    const __half2 code = halves_of(masked_halves<0x00f000f0>(word));  // 1024 + 16 code
    return bits_of(
        __hmul2(__hfma2(code, __float2half2_rn(0.0625f), __float2half2_rn(-72.0f)), f.scale[i]));
  }
};

// kFp8Block: exponent and mantissa of e4m3 moved into a half are the value times 2^-8.
struct Fp8 : InOrder {
  static constexpr int kUnits = 2, kUnitMmas = 4;
  static constexpr int kBlockBytes = 128;
  static constexpr float kUnit = 256.0f;
  static constexpr float kOutputScale = 1.0f / kLift;
  struct Raw {
    float scale;
  };
  struct Factors {
    __half2 scale;
  };
  struct Row : LineRow {
    uint32_t scale;
  };

  __device__ static Row row(const Weights& w, int r, int t) {
    return {LineRow::of(w, r, t), r / w.group * w.scale_stride};
  }
  __device__ static uint4 line(const Weights& w, const Row& row, int block, int unit) {
    return row.line(w, block * kBlockBytes + unit * 64);
  }
  __device__ static Raw raw(const Weights& w, const Row& row, int block) {
    return {__ldg(w.scales + row.scale + block * kBlock / w.group)};
  }
  __device__ static Factors factors(const Raw& raw) {
    const float scale = raw.scale * (kUnit * kLift);
    return {finite_halves(scale, scale)};
  }
  __device__ static Operand operand(const uint4& low, const uint4& high, const Factors& low_f,
                                    const Factors& high_f, int mma) {
    const uint32_t a = word_of(low, mma), b = word_of(high, mma);
    return {weights<0x1404>(a, low_f), weights<0x1404>(b, high_f), weights<0x3424>(a, low_f),
            weights<0x3424>(b, high_f)};
  }
  // Input 64 unit + 16 t + 4 word + byte.
  __device__ static int place(int k) {
    const int t = k % 64 / 16, mma = k / 64 * 4 + k % 16 / 4;
    return mma * 16 + k % 4 / 2 * 8 + 2 * t + k % 2;
  }

 private:
  // Two codes, of bytes 0 and 1 or 2 and 3, in the high bytes of halves.
  template <uint32_t SELECTOR>
  __device__ static uint32_t weights(uint32_t word, const Factors& f) {
    const uint32_t codes = __byte_perm(word, 0, SELECTOR);
    const uint32_t value = (codes & 0x80008000u) | (codes >> 1 & 0x3f803f80u);
    return bits_of(__hmul2(halves_of(value), f.scale));
  }
};

// kDense in two bytes.
template <class Code>
struct Dense : InOrder {
  static constexpr int kUnits = 4, kUnitMmas = 2;
  static constexpr int kBlockBytes = 256;
  static constexpr float kOutputScale = 1.0f;
  struct Raw {};
  struct Factors {};
  using Row = LineRow;

  __device__ static Row row(const Weights& w, int r, int t) { return LineRow::of(w, r, t); }
  __device__ static uint4 line(const Weights& w, const Row& row, int block, int unit) {
    return row.line(w, block * kBlockBytes + unit * 64);
  }
  __device__ static Raw raw(const Weights&, const Row&, int) { return {}; }
  __device__ static Factors factors(const Raw&) { return {}; }
  __device__ static Operand operand(const uint4& low, const uint4& high, const Factors&,
                                    const Factors&, int mma) {
    const int word = 2 * mma;
    return {halves(word_of(low, word)), halves(word_of(high, word)), halves(word_of(low, word + 1)),
            halves(word_of(high, word + 1))};
  }
  // Input 32 unit + 8 t + 4 mma + 0…3.
  __device__ static int place(int k) {
    const int t = k % 32 / 8, mma = k / 32 * 2 + k % 8 / 4;
    return mma * 16 + k % 4 / 2 * 8 + 2 * t + k % 2;
  }

 private:
  __device__ static uint32_t halves(uint32_t word) {
    if constexpr (std::is_same_v<Code, __half>) {
      // Registers of their own: an operand that is a loaded line holds up the MMAs before it.
      uint32_t out;
      asm volatile("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(word), "r"(0x3c003c00u));
      return out;
    } else {
      return bits_of(
          finite_halves(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)));
    }
  }
};

}  // namespace exode::cuda::gemm
