// The inner products of int4 weights in integers, for machines with 8-bit dot products (AVX-512
// VNNI): a multiply-add takes 64 weights instead of 16, and decoding them costs a fifth.
//
// Inputs become fixed-point numbers that share a scale per segment of 128: x = scale · X with |X| <
// 2^23, about what f32 resolves of the largest of them. X is split into three signed digits of base
// 256, one dot product each. All of this is exact; only the sums of segments, scaled, are added in
// f32, in the order of K. So a row has the same bits whatever runs beside it.
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
// Up to this many every thread converts all of them for itself, which takes less time than a barrier
// and reading what another core wrote.
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
