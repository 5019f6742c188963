#include "ops/cpu/matmul_kernel.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/matmul_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/matmul_sources-inl.h"

// Register tiles are arrays of vectors: they stay in registers only when every loop over them is
// unrolled, which -O2 does not do by itself.
#ifndef EXODE_UNROLL
#define EXODE_UNROLL _Pragma("GCC unroll 8")
#endif

HWY_BEFORE_NAMESPACE();
namespace exode::cpu::HWY_NAMESPACE {

// Sums of XR input rows against NR weight rows over one scale group of a segment.
template <class Source, int XR, int NR>
struct Tile {
  V sum[XR][NR];

  template <size_t P>
  HWY_INLINE void part(const typename Source::Line (&line)[NR], const float* const (&x)[XR]) {
    V weights[NR];
    EXODE_UNROLL
    for (int n = 0; n < NR; ++n) weights[n] = Source::template part<P>(line[n]);
    EXODE_UNROLL
    for (int r = 0; r < XR; ++r) {
      const V input = hn::LoadU(D(), x[r] + P * kLanes);
      EXODE_UNROLL
      for (int n = 0; n < NR; ++n) sum[r][n] = hn::MulAdd(weights[n], input, sum[r][n]);
    }
  }
  // Sources that need the offset at compile time (shift counts) are unrolled; the others loop.
  template <size_t First, size_t Count>
  HWY_INLINE void run(const typename Source::Line (&line)[NR], const float* const (&x)[XR]) {
    if constexpr (Source::kUnrolled) {
      parts<First>(line, x, std::make_index_sequence<Count>());
    } else {
      for (size_t p = First; p < First + Count; ++p) {
        V weights[NR];
        EXODE_UNROLL
        for (int n = 0; n < NR; ++n) weights[n] = Source::part_at(line[n], p);
        EXODE_UNROLL
        for (int r = 0; r < XR; ++r) {
          const V input = hn::LoadU(D(), x[r] + p * kLanes);
          EXODE_UNROLL
          for (int n = 0; n < NR; ++n) sum[r][n] = hn::MulAdd(weights[n], input, sum[r][n]);
        }
      }
    }
  }
  template <size_t First, size_t... P>
  HWY_INLINE void parts(const typename Source::Line (&line)[NR], const float* const (&x)[XR],
                        std::index_sequence<P...>) {
    (part<First + P>(line, x), ...);
  }
  HWY_INLINE void clear() {
    EXODE_UNROLL
    for (int r = 0; r < XR; ++r) {
      EXODE_UNROLL
      for (int n = 0; n < NR; ++n) sum[r][n] = hn::Zero(D());
    }
  }
};

// Inputs of a group summed lane by lane: what a zero point other than 8 multiplies.
template <size_t First, size_t Count>
HWY_INLINE V input_sum(const float* x) {
  V total = hn::LoadU(D(), x + First * kLanes);
  for (size_t p = First + 1; p < First + Count; ++p)
    total = hn::Add(total, hn::LoadU(D(), x + p * kLanes));
  return total;
}

template <class Source, int XR, int NR>
struct Segment {
  V acc[XR][NR];

  template <size_t G>
  HWY_INLINE void group(const Source& source, const typename Source::Line (&line)[NR],
                        const float* const (&x)[XR], int32_t row, int32_t segment) {
    constexpr size_t kCount = kParts / Source::kGroups;
    constexpr size_t kFirst = G * kCount;
    Tile<Source, XR, NR> tile;
    tile.clear();
    tile.template run<kFirst, kCount>(line, x);
    if (source.has_zeros()) {
      EXODE_UNROLL
      for (int r = 0; r < XR; ++r) {
        const V inputs = input_sum<kFirst, kCount>(x[r]);
        EXODE_UNROLL
        for (int n = 0; n < NR; ++n) {
          const V shift =
              hn::Set(D(), source.zero_shift(row + n, segment, static_cast<int32_t>(G)));
          tile.sum[r][n] = hn::MulAdd(shift, inputs, tile.sum[r][n]);
        }
      }
    }
    EXODE_UNROLL
    for (int n = 0; n < NR; ++n) {
      const V scale = hn::Set(D(), source.scale(row + n, segment, static_cast<int32_t>(G)));
      EXODE_UNROLL
      for (int r = 0; r < XR; ++r) acc[r][n] = hn::MulAdd(scale, tile.sum[r][n], acc[r][n]);
    }
  }
  template <size_t... G>
  HWY_INLINE void groups(const Source& source, const typename Source::Line (&line)[NR],
                         const float* const (&x)[XR], int32_t row, int32_t segment,
                         std::index_sequence<G...>) {
    (group<G>(source, line, x, row, segment), ...);
  }
};

// XR input rows against weight rows [row, row + NR).
template <class Source, int XR, int NR>
HWY_NOINLINE void block(const Source& source, const MatMulJob& job, int32_t first_x, int32_t row) {
  Segment<Source, XR, NR> s;
  const float* x[XR];
  EXODE_UNROLL
  for (int r = 0; r < XR; ++r) {
    x[r] = job.x + (first_x + r) * job.x_stride;
    EXODE_UNROLL
    for (int n = 0; n < NR; ++n) s.acc[r][n] = hn::Zero(D());
  }
  const int32_t segments = padded_cols(job.w->cols) / kInt4Block;
  for (int32_t segment = 0; segment < segments; ++segment) {
    typename Source::Line line[NR];
    EXODE_UNROLL
    for (int n = 0; n < NR; ++n) line[n] = source.line(row + n, segment);
    s.groups(source, line, x, row, segment, std::make_index_sequence<Source::kGroups>());
    EXODE_UNROLL
    for (int r = 0; r < XR; ++r) x[r] += kInt4Block;
  }
  EXODE_UNROLL
  for (int r = 0; r < XR; ++r) {
    EXODE_UNROLL
    for (int n = 0; n < NR; ++n) {
      job.out[(first_x + r) * job.out_stride + row + n] =
          hn::GetLane(hn::SumOfLanes(D(), s.acc[r][n]));
    }
  }
}

// All input rows against NR weight rows: as many at a time as registers allow.
template <class Source, int NR>
void rows_block(const Source& source, const MatMulJob& job, int32_t row) {
  int32_t r = 0;
  if constexpr (NR == 4) {
    for (; r + 4 <= job.rows; r += 4) {
      block<Source, 4, 2>(source, job, r, row);
      block<Source, 4, 2>(source, job, r, row + 2);
    }
    for (; r + 2 <= job.rows; r += 2) block<Source, 2, NR>(source, job, r, row);
  }
  for (; r < job.rows; ++r) block<Source, 1, NR>(source, job, r, row);
}

// Above this many rows decoding once into a buffer beats decoding once per four rows.
constexpr int32_t kDecodeRows = 8;

template <class Source, int NR>
void weight_rows(const Source& source, const MatMulJob& job, int32_t row, float* decoded) {
  if (job.rows <= kDecodeRows && !source.pads()) {
    rows_block<Source, NR>(source, job, row);
  } else {
    const Decoded<Source> buffer(source, row, NR, padded_cols(job.w->cols), decoded);
    rows_block<Decoded<Source>, NR>(buffer, job, row);
  }
}

template <class Source>
void run(const MatMulJob& job, int32_t first, int32_t last, float* decoded) {
  const Source source(*job.w);
  int32_t row = first;
  for (; row + 4 <= last; row += 4) weight_rows<Source, 4>(source, job, row, decoded);
  for (; row < last; ++row) weight_rows<Source, 1>(source, job, row, decoded);
}

void matmul_range(const MatMulJob& job, int32_t first, int32_t last, float* decoded) {
  const WeightView& w = *job.w;
  switch (w.layout) {
    case WeightLayout::kInt4Group:
      if (w.group == 32) return run<Int4Source<4>>(job, first, last, decoded);
      if (w.group == 64) return run<Int4Source<2>>(job, first, last, decoded);
      return run<Int4Source<1>>(job, first, last, decoded);
    case WeightLayout::kFp8Block:
      return run<Fp8Source>(job, first, last, decoded);
    case WeightLayout::kDense:
      if (w.codes.dtype == DType::kBF16) return run<DenseSource<Bf16>>(job, first, last, decoded);
      if (w.codes.dtype == DType::kF16) return run<DenseSource<F16>>(job, first, last, decoded);
      return run<DenseSource<F32>>(job, first, last, decoded);
  }
}

}  // namespace exode::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exode::cpu {

HWY_EXPORT(matmul_range);

void matmul_range(const MatMulJob& job, int32_t first, int32_t last, float* decoded) {
  HWY_DYNAMIC_DISPATCH(matmul_range)(job, first, last, decoded);
}

void matmul_all(ThreadPool& pool, const MatMulJob& job) {
  // Below about this much work a second thread costs more than it brings.
  constexpr int64_t kWorkPerThread = 1 << 16;
  const int64_t work = int64_t{job.w->rows} * job.w->cols * job.rows;
  const auto parts =
      static_cast<int32_t>(std::clamp<int64_t>(work / kWorkPerThread, 1, pool.size()));
  const int32_t quads = (job.w->rows + 3) / 4;  // whole register tiles per thread
  const int64_t per_thread = int64_t{kDecodedRows} * padded_cols(job.w->cols);
  pool.run(parts, [&](int32_t part, int32_t count) {
    const auto begin = static_cast<int32_t>(int64_t{quads} * part / count) * 4;
    const auto end =
        std::min(static_cast<int32_t>(int64_t{quads} * (part + 1) / count) * 4, job.w->rows);
    if (begin < end) matmul_range(job, begin, end, job.decoded + part * per_thread);
  });
}

void pad_rows(const float* x, int64_t x_stride, int32_t rows, int32_t cols, float* padded) {
  const int32_t width = padded_cols(cols);
  for (int32_t r = 0; r < rows; ++r) {
    std::memcpy(padded + int64_t{r} * width, x + r * x_stride,
                static_cast<size_t>(cols) * sizeof(float));
    std::fill(padded + int64_t{r} * width + cols, padded + int64_t{r + 1} * width, 0.0f);
  }
}

}  // namespace exode::cpu
#endif  // HWY_ONCE
