// The inner products of int4 weights in integers, for machines with 8-bit dot products (AVX-512
// VNNI): an operation multiplies 64 codes instead of 16, and decoding costs a quarter.
//
// Inputs become fixed-point numbers that share a scale per segment of 128: x = scale · X with
// |X| < 2^21 and X = d0 + 2^8 d1 − 2^15 d2 for signed bytes d0, d1, d2, one dot product each. The
// sum of a segment is exact; only these sums, scaled, are added in f32, in the order of K. So a row
// has the same bits whatever runs beside it. Against f32 products the mean error of random rows is
// 3e-7 of their size. Fast jobs do without d2: |X| < 2^14, still far finer than the bf16
// activations that fast numerics stand for. Inputs that are not finite make the whole row NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/weight.h"

namespace exode::cpu {

struct MatMulJob;

// 128 inputs of a row.
struct alignas(64) FixedSegment {
  // Digit d of input 32 b + 16 h + j at [d][h][4 j + b]: as the weight codes lie in their block.
  int8_t digits[3][2][64];
  int32_t start[4];  // −8 ΣX over the inputs of each dword lane, since codes are 8 too large
  float scale;
};

inline constexpr int32_t kFixedRows = 256;  // input rows converted at a time
// Up to this many every thread converts all of them for itself: that takes 1 to 3 µs less than a
// barrier and reading what another core wrote.
inline constexpr int32_t kOwnFixedRows = 8;

// Bytes of MatMulJob::fixed for jobs of up to `rows` rows, whether or not the machine will use it.
constexpr size_t fixed_bytes(const WeightView& w, int32_t rows, int32_t threads) {
  if (w.layout != WeightLayout::kInt4Group || w.group % kInt4Block != 0) return 0;
  const int32_t segments = (w.cols + kInt4Block - 1) / kInt4Block;
  const int32_t own = threads * (rows < kOwnFixedRows ? rows : kOwnFixedRows);
  const int32_t shared = rows < kFixedRows ? rows : kFixedRows;
  return static_cast<size_t>(own > shared ? own : shared) * static_cast<size_t>(segments) *
         sizeof(FixedSegment);
}

// Whether the machine has the instructions and the weights have whole segments per scale.
bool takes_fixed(const WeightView& w);

// Runs a job that takes_fixed().
void matmul_fixed(ThreadPool& pool, MatMulJob job);

}  // namespace exode::cpu
