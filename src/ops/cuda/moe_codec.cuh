// How the expert kernels read a weight matrix: the A operands of mma.m16n8k16 (16 outputs × 16
// inputs, f16) of a block of 128 inputs, and the B operands (16 inputs × 8 rows of x) to match.
//
// A lane is (g, t) = (lane / 4, lane % 4). It holds rows g and g + 8 of a strip of 16 outputs and
// row g of a tile of 8 rows of x. The order of inputs inside an MMA is free as long as A and B
// agree, so weights are used as they lie in memory, and each codec says which inputs of a block
// feed which MMA: float4 j = 0…7 of a lane starts at input(j, t). In halves a block of x is stored
// as the lanes want it: 16 bytes of lane t for each pair of MMAs, at half 32 pair + 8 t.
#pragma once

#include "ops/cuda/launch.cuh"

namespace exode::cuda::moe {

constexpr int kStrip = 16;   // outputs of one MMA
constexpr int kRowTile = 8;  // rows of x of one MMA
constexpr int kBlock = 128;  // inputs
constexpr int kBlockMmas = 8;

struct Matrix {
  const uint8_t* codes;
  const float* scales;
  const uint8_t* zeros;  // null: none
  int64_t row_bytes, scale_stride, zero_stride;
  int cols, blocks, blocks_per_scale;
  int strip;  // rows interleaved (tensor/weight.h)

  // Element of row `row` at place `at` along K, in units of interleaving.
  __device__ int64_t place(int64_t row, int64_t stride, int at, int unit) const {
    const int64_t in_strip = row & (strip - 1);
    return (row - in_strip) * stride + (int64_t{at} * strip + in_strip) * unit;
  }
};

inline Matrix matrix_of(const WeightView& w) {
  Matrix m{};
  if (w.rows == 0) return m;
  m.codes = reinterpret_cast<const uint8_t*>(w.codes.data);
  m.row_bytes = w.codes.row_stride * static_cast<int64_t>(dtype_bytes(w.codes.dtype));
  m.cols = w.cols;
  m.strip = w.layout == WeightLayout::kInt4Group ? w.strip : 1;
  m.blocks = (w.cols + kBlock - 1) / kBlock;
  if (!w.scales.empty()) {
    m.scales = w.scales.row<float>(0);
    m.scale_stride = w.scales.row_stride;
    m.blocks_per_scale = w.group / kBlock;
  }
  if (!w.zeros.empty()) {
    m.zeros = w.zeros.row<uint8_t>(0);
    m.zero_stride = w.zeros.row_stride;
  }
  return m;
}

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
__device__ inline uint32_t finite_halves(float a, float b) {
  constexpr float kMax = 65504.0f;
  return bits_of(__floats2half2_rn(fminf(fmaxf(a, -kMax), kMax), fminf(fmaxf(b, -kMax), kMax)));
}

__device__ inline uint4 load_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

template <int LOADS>
struct Line {  // one lane's share of a weight row and block
  uint4 v[LOADS];
  __device__ uint32_t word(int i) const { return (&v[i / 4].x)[i % 4]; }
};

// A block in consecutive codes: each float4 of x is one MMA.
__device__ inline void pack_in_order(const float4 (&f)[8], uint32_t (&b)[16]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    b[2 * j] = finite_halves(f[j].x, f[j].y);
    b[2 * j + 1] = finite_halves(f[j].z, f[j].w);
  }
}

// kInt4Group: nibbles p and p + 4 of a word (inputs 16 p + i, 16 (p + 4) + i of word i) become one
// half2 of code − 8 without moving bits.
struct Int4Codec {
  static constexpr int kLoads = 1;
  static constexpr bool kHasZeros = true;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 1;  // what an A operand of 1 stands for, before the scale
  using Lines = Line<kLoads>;
  __device__ static Lines line(const Matrix& w, int64_t row, int block, int t) {
    return {{load_once(w.codes + w.place(row, w.row_bytes, block, 64) + t * 16)}};
  }
  __device__ static int input(int j, int t) { return 16 * j + 4 * t; }
  // Half of a stored block where input k is.
  __device__ static int place(int k) {
    const int j = k / 16, i = k % 16;
    return i % 4 * 32 + i / 4 * 8 + j % 4 * 2 + j / 4;
  }
  __device__ static void pack(const float4 (&f)[8], uint32_t (&b)[16]) {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      b[p] = finite_halves(f[p].x, f[p + 4].x);
      b[4 + p] = finite_halves(f[p].y, f[p + 4].y);
      b[8 + p] = finite_halves(f[p].z, f[p + 4].z);
      b[12 + p] = finite_halves(f[p].w, f[p + 4].w);
    }
  }
  __device__ static Operand operand(const Lines& low, const Lines& high, int mma_index) {
    const int shift = mma_index % 2 * 8;
    const uint32_t a = low.word(mma_index / 2) >> shift, b = high.word(mma_index / 2) >> shift;
    return {even(a), even(b), odd(a), odd(b)};
  }
  __device__ static float scale(const Matrix& w, int64_t row, int block) {
    return __ldg(w.scales + w.place(row, w.scale_stride, block / w.blocks_per_scale, 1));
  }
  __device__ static float shift(const Matrix& w, int64_t row, int block) {
    const int64_t at = w.place(row, w.zero_stride, block / w.blocks_per_scale, 1);
    return 8.0f - static_cast<float>(w.zeros[at]);
  }

 private:
  template <uint32_t MASK>
  __device__ static __half2 masked(uint32_t word) {  // (word & MASK) | exponent of 1024
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "n"(MASK), "n"(0x64006400));
    return halves_of(out);
  }
  __device__ static uint32_t even(uint32_t word) {  // 1024 + code
    return bits_of(__hsub2(masked<0x000f000f>(word), __float2half2_rn(1032.0f)));
  }
  __device__ static uint32_t odd(uint32_t word) {  // 1024 + 16 code
    return bits_of(
        __hfma2(masked<0x00f000f0>(word), __float2half2_rn(0.0625f), __float2half2_rn(-72.0f)));
  }
};

// kFp8Block: exponent and mantissa of e4m3 moved into a half are the value times 2^-8.
struct Fp8Codec {
  static constexpr int kLoads = 2;
  static constexpr bool kHasZeros = false;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 256;
  using Lines = Line<kLoads>;
  __device__ static Lines line(const Matrix& w, int64_t row, int block, int t) {
    const uint8_t* from = w.codes + row * w.row_bytes + int64_t{block} * 128 + t * 16;
    return {{load_once(from), load_once(from + 64)}};
  }
  __device__ static int input(int j, int t) { return j / 4 * 64 + 16 * t + j % 4 * 4; }
  __device__ static int place(int k) {
    const int t = k % 64 / 16, j = k / 64 * 4 + k % 16 / 4;
    return j / 2 * 32 + t * 8 + j % 2 * 4 + k % 4;
  }
  __device__ static void pack(const float4 (&f)[8], uint32_t (&b)[16]) { pack_in_order(f, b); }
  __device__ static Operand operand(const Lines& low, const Lines& high, int mma_index) {
    const uint32_t a = low.word(mma_index), b = high.word(mma_index);
    return {halves<0x1404>(a), halves<0x1404>(b), halves<0x3424>(a), halves<0x3424>(b)};
  }
  __device__ static float scale(const Matrix& w, int64_t row, int block) {
    return __ldg(w.scales + row / kBlock * w.scale_stride + block);
  }
  __device__ static float shift(const Matrix&, int64_t, int) { return 0; }

 private:
  // Two codes, of bytes 0 and 1 or 2 and 3, in the high bytes of halves.
  template <uint32_t SELECTOR>
  __device__ static uint32_t halves(uint32_t word) {
    const uint32_t codes = __byte_perm(word, 0, SELECTOR);
    return (codes & 0x80008000u) | (codes >> 1 & 0x3f803f80u);
  }
};

// kDense in bf16.
struct Bf16Codec {
  static constexpr int kLoads = 4;
  static constexpr bool kHasZeros = false;
  static constexpr bool kScaled = false;
  static constexpr float kUnit = 1;
  using Lines = Line<kLoads>;
  __device__ static Lines line(const Matrix& w, int64_t row, int block, int t) {
    const uint8_t* from = w.codes + row * w.row_bytes + int64_t{block} * 256 + t * 16;
    return {{load_once(from), load_once(from + 64), load_once(from + 128), load_once(from + 192)}};
  }
  __device__ static int input(int j, int t) { return j / 2 * 32 + 8 * t + j % 2 * 4; }
  __device__ static int place(int k) { return k; }
  __device__ static void pack(const float4 (&f)[8], uint32_t (&b)[16]) { pack_in_order(f, b); }
  __device__ static Operand operand(const Lines& low, const Lines& high, int mma_index) {
    return {halves(low.word(2 * mma_index)), halves(high.word(2 * mma_index)),
            halves(low.word(2 * mma_index + 1)), halves(high.word(2 * mma_index + 1))};
  }
  __device__ static float scale(const Matrix&, int64_t, int) { return 1; }
  __device__ static float shift(const Matrix&, int64_t, int) { return 0; }

 private:
  __device__ static uint32_t halves(uint32_t word) {
    return finite_halves(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
  }
};

// B operands of one block of one row of x; zero past the end. Eight 16-byte loads.
template <class Codec>
__device__ void load_inputs(const float* x, int block, int cols, int t, uint32_t (&b)[16]) {
  float4 f[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int k = block * kBlock + Codec::input(j, t);
    f[j] = make_float4(0, 0, 0, 0);
    if (x != nullptr && k < cols) f[j] = *reinterpret_cast<const float4*>(x + k);
  }
  Codec::pack(f, b);
}

}  // namespace exode::cuda::moe
