// The inner product engine shared by MatMul and MoeExperts.
//
// out[r, n] is summed in one fixed order that depends on K and the weight layout only: the K axis
// is cut into segments of 128 inputs, a segment into its scale groups; a group is summed in vector
// lanes, scaled once, and added to the lanes of the output; lanes are added at the end. Small row
// counts decode weights in registers, large ones decode a few weight rows into a buffer and reuse
// them, in the same order: every row gets the same bits whatever else is in the batch. Where the
// machine can, int4 weights of long groups take another way (matmul_fixed.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/cpu/matmul_fixed.h"
#include "tensor/weight.h"

namespace exode::cpu {

struct MatMulJob {
  const WeightView* w = nullptr;
  const float* x = nullptr;  // [rows, Kp], Kp = K rounded up to 128, zeros past K
  int64_t x_stride = 0;
  int32_t rows = 0;
  float* out = nullptr;  // [rows, N]
  int64_t out_stride = 0;
  float* scratch = nullptr;       // kScratchFloats per thread, 64-byte aligned
  FixedSegment* fixed = nullptr;  // fixed_bytes()
  bool fast = false;              // inputs of 15 bits will do (matmul_fixed.h)
};

inline constexpr int32_t kQuad = 4;             // weight rows of a register tile
inline constexpr int32_t kStripe = 2 * kQuad;   // weight rows decoded together
inline constexpr int32_t kDecodedSegments = 4;  // of each of them, decoded at a time: 16 KiB
inline constexpr int32_t kPanelRows = 64;       // input rows that use them before the next
inline constexpr int32_t kScratchFloats =       // decoded weights, then sums of up to 16 lanes
    kStripe * (kDecodedSegments * kInt4Block + kPanelRows * 16);

constexpr int32_t padded_cols(int32_t cols) {
  return (cols + kInt4Block - 1) / kInt4Block * kInt4Block;
}

// Input rows of a panel: what about a MiB holds, since the second cache has to keep them.
constexpr int32_t panel_rows(int32_t width) {
  constexpr int32_t kPanelFloats = 1 << 18;
  const int32_t rows = kPanelFloats / width / 4 * 4;
  return rows < 8 ? 8 : rows < kPanelRows ? rows : kPanelRows;
}

// Outputs [first, last) on the calling thread, which owns the scratch.
void matmul_range(const MatMulJob& job, int32_t first, int32_t last);

struct Span {
  int32_t begin, end;
};

// Calls body(job, part, outputs) on the threads of the pool, each with its scratch and a range of
// whole stripes of the outputs.
template <class Body>
void split_outputs(ThreadPool& pool, const MatMulJob& job, Body&& body) {
  // Below about this much work a second thread costs more than it brings.
  constexpr int64_t kWorkPerThread = 1 << 16;
  const int64_t work = int64_t{job.w->rows} * job.w->cols * job.rows;
  const auto parts =
      static_cast<int32_t>(std::clamp<int64_t>(work / kWorkPerThread, 1, pool.size()));
  const int32_t stripes = (job.w->rows + kStripe - 1) / kStripe;
  pool.run(parts, [&](int32_t part, int32_t count) {
    const auto begin = static_cast<int32_t>(int64_t{stripes} * part / count) * kStripe;
    const auto end = std::min(static_cast<int32_t>(int64_t{stripes} * (part + 1) / count) * kStripe,
                              job.w->rows);
    MatMulJob own = job;
    own.scratch += int64_t{part} * kScratchFloats;
    if (begin < end) body(own, part, Span{begin, end});
  });
}

// All outputs, split over the pool.
void matmul_all(ThreadPool& pool, const MatMulJob& job);

// Copies rows of x into the padded form a job needs, when K is not a multiple of 128.
void pad_rows(const float* x, int64_t x_stride, int32_t rows, int32_t cols, float* padded);

}  // namespace exode::cpu
