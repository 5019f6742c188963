#include "ops/cpu/matmul_kernel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

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

// Where the sums of a tile are while it runs over K: small tiles keep them in registers, beside
// which the sums of a group would not fit for large ones.
template <int XR, int NR>
struct RegisterSums {
  V sum[XR][NR];

  HWY_INLINE void load(const float* sums) {
    EXODE_UNROLL
    for (int r = 0; r < XR; ++r) {
      EXODE_UNROLL
      for (int n = 0; n < NR; ++n) sum[r][n] = hn::Load(D(), sums + (r * kStripe + n) * kLanes);
    }
  }
  HWY_INLINE void add(int r, int n, V scale, V group) {
    sum[r][n] = hn::MulAdd(scale, group, sum[r][n]);
  }
  HWY_INLINE void store(float* sums) const {
    EXODE_UNROLL
    for (int r = 0; r < XR; ++r) {
      EXODE_UNROLL
      for (int n = 0; n < NR; ++n) hn::Store(sum[r][n], D(), sums + (r * kStripe + n) * kLanes);
    }
  }
};

struct MemorySums {
  float* memory = nullptr;

  HWY_INLINE void load(float* sums) { memory = sums; }
  HWY_INLINE void add(int r, int n, V scale, V group) const {
    float* sum = memory + (r * kStripe + n) * kLanes;
    hn::Store(hn::MulAdd(scale, group, hn::Load(D(), sum)), D(), sum);
  }
  HWY_INLINE void store(float*) const {}
};

// XR input rows against NR weight rows, over some segments. The sums are [XR][kStripe] vectors in
// memory.
template <class Source, int XR, int NR>
struct Block {
  static constexpr bool kFits = XR * NR <= (kLanes == 16 ? 8 : 4);
  using Sums = std::conditional_t<kFits, RegisterSums<XR, NR>, MemorySums>;
  using Lines = typename Source::Line[NR];

  const Source& source;
  int32_t row;
  const float* x[XR];

  template <size_t G>
  HWY_INLINE void group(const Lines& line, int32_t segment, Sums& sums) {
    constexpr size_t kCount = kParts / Source::kGroups;
    constexpr size_t kFirst = G * kCount;
    constexpr auto kGroup = static_cast<int32_t>(G);
    Tile<Source, XR, NR> tile;
    tile.clear();
    tile.template run<kFirst, kCount>(line, x);
    if (source.has_zeros()) {
      EXODE_UNROLL
      for (int r = 0; r < XR; ++r) {
        const V inputs = input_sum<kFirst, kCount>(x[r]);
        EXODE_UNROLL
        for (int n = 0; n < NR; ++n) {
          const V shift = hn::Set(D(), source.zero_shift(row + n, segment, kGroup));
          tile.sum[r][n] = hn::MulAdd(shift, inputs, tile.sum[r][n]);
        }
      }
    }
    EXODE_UNROLL
    for (int n = 0; n < NR; ++n) {
      const V scale = hn::Set(D(), source.scale(row + n, segment, kGroup));
      EXODE_UNROLL
      for (int r = 0; r < XR; ++r) sums.add(r, n, scale, tile.sum[r][n]);
    }
  }
  template <size_t... G>
  HWY_INLINE void groups(const Lines& line, int32_t segment, Sums& sums,
                         std::index_sequence<G...>) {
    (group<G>(line, segment, sums), ...);
  }
  HWY_NOINLINE void run(int32_t begin, int32_t end, float* memory) {
    Sums sums;
    sums.load(memory);
    for (int32_t segment = begin; segment < end; ++segment) {
      typename Source::Line line[NR];
      EXODE_UNROLL
      for (int n = 0; n < NR; ++n) line[n] = source.line(row + n, segment);
      groups(line, segment, sums, std::make_index_sequence<Source::kGroups>());
      EXODE_UNROLL
      for (int r = 0; r < XR; ++r) x[r] += kInt4Block;
    }
    sums.store(memory);
  }
};

// XR input rows from r.input on against NR weight rows.
template <class Source, int XR, int NR>
HWY_INLINE void tile(const Source& source, const MatMulJob& job, const Range& r, float* sums) {
  // Short groups come to their sums so often that these must be in registers.
  constexpr int kWide = XR < 4 || (kLanes == 16 && Source::kGroups == 1) ? kQuad : 2;
  constexpr int kStep = HWY_MIN(NR, kWide);
  for (int n = 0; n < NR; n += kStep) {
    Block<Source, XR, kStep> block{source, r.row + n, {}};
    EXODE_UNROLL
    for (int i = 0; i < XR; ++i) {
      block.x[i] = job.x + (r.input + i) * job.x_stride + int64_t{r.begin} * kInt4Block;
    }
    block.run(r.begin, r.end, sums + n * kLanes);
  }
}

constexpr int64_t kRowSums = kStripe * kLanes;  // floats

// Input rows [r.input, last) against NR weight rows: as many at a time as registers allow.
template <class Source, int NR>
void panel(const Source& source, const MatMulJob& job, Range r, int32_t last, float* sums) {
  for (; r.input + 4 <= last; r.input += 4, sums += 4 * kRowSums) {
    tile<Source, 4, NR>(source, job, r, sums);
  }
  for (; r.input + 2 <= last; r.input += 2, sums += 2 * kRowSums) {
    tile<Source, 2, NR>(source, job, r, sums);
  }
  for (; r.input < last; r.input += 1, sums += kRowSums) tile<Source, 1, NR>(source, job, r, sums);
}

template <int NR>
void store_panel(const MatMulJob& job, const Range& r, int32_t last, const float* sums) {
  for (int32_t input = r.input; input < last; ++input, sums += kRowSums) {
    float* out = job.out + input * job.out_stride + r.row;
    for (int n = 0; n < NR; ++n) {
      out[n] = hn::GetLane(hn::SumOfLanes(D(), hn::Load(D(), sums + n * kLanes)));
    }
  }
}

void clear_sums(float* sums, int32_t inputs) {
  for (int64_t i = 0; i < inputs * kRowSums; i += kLanes) hn::Store(hn::Zero(D()), D(), sums + i);
}

// All inputs, a few, against NR weight rows, decoded in registers.
template <int NR, class Source>
void direct_rows(const Source& source, const MatMulJob& job, int32_t row, float* sums) {
  const Range r{row, 0, 0, padded_cols(job.w->cols) / kInt4Block};
  clear_sums(sums, job.rows);
  panel<Source, NR>(source, job, r, job.rows, sums);
  store_panel<NR>(job, r, job.rows, sums);
}

// Input rows [r.input, last) against NR weight rows, decoded to memory part by part of K, so that a
// part stays in the first cache.
template <int NR, class Source>
void decoded_rows(const Source& source, const MatMulJob& job, Range r, int32_t last,
                  float* scratch) {
  float* const sums = scratch + kStripe * kDecodedSegments * kInt4Block;
  const int32_t segments = r.end;
  clear_sums(sums, last - r.input);
  for (r.begin = 0; r.begin < segments; r.begin = r.end) {
    r.end = HWY_MIN(r.begin + kDecodedSegments, segments);
    const Decoded<Source> buffer(source, r, NR, scratch);
    panel<Decoded<Source>, NR>(buffer, job, r, last, sums);
  }
  store_panel<NR>(job, r, last, sums);
}

// Above this many rows decoding once into a buffer beats decoding once per four rows.
constexpr int32_t kDecodeRows = 8;

template <class Source>
void run(const MatMulJob& job, int32_t first, int32_t last, float* scratch) {
  const Source source(*job.w);
  if (job.rows <= kDecodeRows && !source.pads()) {
    int32_t row = first;
    for (; row + kQuad <= last; row += kQuad) direct_rows<kQuad>(source, job, row, scratch);
    for (; row < last; ++row) direct_rows<1>(source, job, row, scratch);
    return;
  }
  const int32_t width = padded_cols(job.w->cols);
  const int32_t inputs = panel_rows(width);
  for (int32_t input = 0; input < job.rows; input += inputs) {
    const int32_t end = HWY_MIN(input + inputs, job.rows);
    Range r{first, input, 0, width / kInt4Block};
    for (; r.row + kStripe <= last; r.row += kStripe) {
      decoded_rows<kStripe>(source, job, r, end, scratch);
    }
    for (; r.row < last; ++r.row) decoded_rows<1>(source, job, r, end, scratch);
  }
}

void matmul_range(const MatMulJob& job, int32_t first, int32_t last) {
  const WeightView& w = *job.w;
  float* const scratch = job.scratch;
  switch (w.layout) {
    case WeightLayout::kInt4Group:
      if (w.group == 32) return run<Int4Source<4>>(job, first, last, scratch);
      if (w.group == 64) return run<Int4Source<2>>(job, first, last, scratch);
      return run<Int4Source<1>>(job, first, last, scratch);
    case WeightLayout::kInt8Group:
      return run<Int8Source>(job, first, last, scratch);
    case WeightLayout::kFp8Block:
      return run<Fp8Source>(job, first, last, scratch);
    case WeightLayout::kDense:
      if (w.codes.dtype == DType::kBF16) return run<DenseSource<Bf16>>(job, first, last, scratch);
      if (w.codes.dtype == DType::kF16) return run<DenseSource<F16>>(job, first, last, scratch);
      return run<DenseSource<F32>>(job, first, last, scratch);
  }
}

}  // namespace exode::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exode::cpu {

HWY_EXPORT(matmul_range);

void matmul_range(const MatMulJob& job, int32_t first, int32_t last) {
  HWY_DYNAMIC_DISPATCH(matmul_range)(job, first, last);
}

void matmul_all(ThreadPool& pool, const MatMulJob& job) {
  if (takes_fixed(*job.w)) return matmul_fixed(pool, job);
  split_outputs(pool, job, [](const MatMulJob& own, int32_t, const Span& outputs) {
    matmul_range(own, outputs.begin, outputs.end);
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
