#include "ops/cpu/matmul_fixed.h"

#include <hwy/base.h>
#include <hwy/targets.h>
#include <immintrin.h>

#include <algorithm>

#include "ops/cpu/matmul_kernel.h"

// Register tiles are arrays of vectors: they stay in registers only when every loop over them is
// unrolled, which -O2 does not do by itself.
#define EXODE_UNROLL _Pragma("GCC unroll 8")

// GCC 12 takes the deliberately undefined operands of some intrinsics for mistakes.
HWY_DIAGNOSTICS(push)
HWY_DIAGNOSTICS_OFF(disable : 4701, ignored "-Wuninitialized")
// See takes_fixed(). Highway's own list for its target AVX3_DL names another kind of VNNI.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,gfni,fma")
namespace exode::cpu {
namespace {

constexpr int32_t kFixedChunk = 8;  // segments: those of four input rows fill a third of a cache
constexpr int32_t kTileQuads = 2;   // 24 sums with four input rows
constexpr int32_t kTileRows = kTileQuads * kQuad;
constexpr int64_t kRowSums = kTileQuads * 16;
// What the middle and the top digit count. These digits have 7 bits: sums of 32 products with a
// code fit 16, and so do these factors, though only because the top one is negative.
constexpr int32_t kMiddle = 1 << 8, kTop = -(1 << 15);

// A segment of four weight rows, ready for dot products. Lane n of 128 bits of codes[h][p] is what
// the digits 16 p … 16 p + 15 of half h are for, of weight row n.
struct alignas(64) QuadSegment {
  __m512i codes[2][4];
  __m512 scale;
  __m512 shift;  // (zero − 8) / 8, by which FixedSegment::start has to be multiplied
};

struct Workspace {
  float sums[kPanelRows * kRowSums];
  QuadSegment quads[kTileQuads][kFixedChunk];
};
static_assert(sizeof(Workspace) <= kScratchFloats * sizeof(float));

// Four scalars, each in the four lanes that belong to one weight row.
HWY_INLINE __m512 spread(const float* const (&p)[kQuad], int64_t at) {
  __m512 v = _mm512_set1_ps(p[0][at]);
  v = _mm512_mask_broadcastss_ps(v, 0x00f0, _mm_load_ss(p[1] + at));
  v = _mm512_mask_broadcastss_ps(v, 0x0f00, _mm_load_ss(p[2] + at));
  return _mm512_mask_broadcastss_ps(v, 0xf000, _mm_load_ss(p[3] + at));
}

// What the next chunk reads, fetched during this one: without this a row that multiplies little
// would wait for memory, and the weights of eight rows are too many streams for the hardware.
struct Ahead {
  // Of the rows of a tile, decoding fetches two and multiplying the others: more at once would wait
  // for each other.
  static constexpr int kDecode = 2;
  static constexpr int kFar = 3 * kTileRows;  // rows, whose weights come to the second cache

  const char* codes;
  const char* scales;
  int64_t codes_stride, scales_stride;  // bytes

  Ahead(const WeightView& w, int32_t row, int32_t segment)
      : codes(reinterpret_cast<const char*>(w.codes.data) + row * w.codes.row_stride +
              segment * 64),
        scales(reinterpret_cast<const char*>(w.scales.data) +
               (row * w.scales.row_stride + segment * kInt4Block / w.group) * 4),
        codes_stride(w.codes.row_stride),
        scales_stride(w.scales.row_stride * 4) {}
  // A segment, counted from the first of the chunk, of a weight row of the tile.
  HWY_INLINE void fetch_codes(int64_t row, int32_t segment) const {
    _mm_prefetch(codes + row * codes_stride + segment * 64, _MM_HINT_T0);
    _mm_prefetch(codes + (row + kFar) * codes_stride + segment * 64, _MM_HINT_T1);
  }
  HWY_INLINE void fetch_rest(int32_t segment) const {
    EXODE_UNROLL
    for (int row = kDecode; row < kTileRows; ++row) fetch_codes(row, segment);
    // As many segments as rows; the scales of a chunk lie within a cache line.
    _mm_prefetch(scales + segment * scales_stride, _MM_HINT_T0);
  }
};
static_assert(kFixedChunk == kTileRows && Ahead::kDecode == kTileQuads);

// Where four weight rows are in a table with a row for each; past the end of the table the last row
// again, whose sums nobody reads.
template <class T>
struct QuadRows {
  const T* row[kQuad] = {};

  QuadRows() = default;
  QuadRows(const ConstTensorView& table, const Span& rows) {
    for (int32_t i = 0; i < kQuad && !table.empty(); ++i)
      row[i] = table.row<T>(HWY_MIN(rows.begin + i, rows.end - 1));
  }
};

struct QuadSource {
  QuadRows<uint8_t> codes, zeros;
  QuadRows<float> scales;

  QuadSource(const WeightView& w, const Span& rows)
      : codes(w.codes, rows), zeros(w.zeros, rows), scales(w.scales, rows) {}
};

HWY_INLINE void decode_codes(const QuadRows<uint8_t>& rows, int64_t segment, QuadSegment& out) {
  const __m512i low = _mm512_set1_epi8(15);
  // As a matrix of bits: bit i of a byte becomes bit i + 4 of the old one.
  const __m512i high = _mm512_set1_epi64(0x1020408000000000);
  __m512i row[kQuad];
  EXODE_UNROLL
  for (int n = 0; n < kQuad; ++n) row[n] = _mm512_loadu_si512(rows.row[n] + segment * 64);
  const __m512i a = _mm512_shuffle_i32x4(row[0], row[1], 0x44);
  const __m512i b = _mm512_shuffle_i32x4(row[2], row[3], 0x44);
  const __m512i c = _mm512_shuffle_i32x4(row[0], row[1], 0xee);
  const __m512i d = _mm512_shuffle_i32x4(row[2], row[3], 0xee);
  const __m512i both[4] = {_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd),
                           _mm512_shuffle_i32x4(c, d, 0x88), _mm512_shuffle_i32x4(c, d, 0xdd)};
  EXODE_UNROLL
  for (int p = 0; p < 4; ++p) {
    out.codes[0][p] = _mm512_and_si512(both[p], low);
    out.codes[1][p] = _mm512_gf2p8affine_epi64_epi8(both[p], high, 0);
  }
}

HWY_INLINE void decode_zeros(const QuadRows<uint8_t>& rows, int64_t at, QuadSegment& out) {
  float shift[kQuad];
  for (int32_t i = 0; i < kQuad; ++i) {
    shift[i] = static_cast<float>(rows.row[i][at]) * 0.125f - 1.0f;
  }
  const float* const each[kQuad] = {shift, shift + 1, shift + 2, shift + 3};
  out.shift = spread(each, 0);
}

HWY_NOINLINE void decode_tile(const QuadSource (&quads)[kTileQuads], const Span& segments,
                              int32_t per_scale, const Ahead& ahead, Workspace& work) {
  // Loops of their own for codes and scales: the pointers of both would not fit the registers.
  for (int q = 0; q < kTileQuads; ++q) {
    const QuadRows<uint8_t> codes = quads[q].codes;
    QuadSegment* out = work.quads[q];
    for (int32_t segment = segments.begin; segment < segments.end; ++segment) {
      ahead.fetch_codes(q, segment - segments.begin);
      decode_codes(codes, segment, *out++);
    }
  }
  for (int q = 0; q < kTileQuads; ++q) {
    const QuadRows<float> scales = quads[q].scales;
    QuadSegment* out = work.quads[q];
    for (int32_t segment = segments.begin; segment < segments.end; ++segment, ++out) {
      const int64_t at = per_scale == 1 ? segment : segment / per_scale;
      out->scale = spread(scales.row, at);
      if (quads[q].zeros.row[0] != nullptr) decode_zeros(quads[q].zeros, at, *out);
    }
  }
}

HWY_INLINE __m512i broadcast(const void* p) {
  return _mm512_broadcast_i32x4(_mm_load_si128(static_cast<const __m128i*>(p)));
}

// XR input rows of kDigits digits against the quads of a tile over one segment.
template <int XR, int kDigits>
struct FixedTile {
  __m512i sum[XR][kTileQuads][kDigits];

  HWY_INLINE void start(const FixedSegment* const (&x)[XR]) {
    EXODE_UNROLL
    for (int r = 0; r < XR; ++r) {
      EXODE_UNROLL
      for (int q = 0; q < kTileQuads; ++q) {
        sum[r][q][0] = broadcast(x[r]->start);
        EXODE_UNROLL
        for (int d = 1; d < kDigits; ++d) sum[r][q][d] = _mm512_setzero_si512();
      }
    }
  }
  HWY_INLINE void add(const FixedSegment* const (&x)[XR], const QuadSegment* quad) {
    EXODE_UNROLL
    for (int i = 0; i < 8; ++i) {
      __m512i codes[kTileQuads];
      EXODE_UNROLL
      for (int q = 0; q < kTileQuads; ++q) codes[q] = quad[q * kFixedChunk].codes[i / 4][i % 4];
      EXODE_UNROLL
      for (int r = 0; r < XR; ++r) {
        EXODE_UNROLL
        for (int d = 0; d < kDigits; ++d) {
          const __m512i digits = broadcast(x[r]->digits[d][i / 4] + i % 4 * 16);
          EXODE_UNROLL
          for (int q = 0; q < kTileQuads; ++q) {
            sum[r][q][d] = _mm512_dpbusd_epi32(sum[r][q][d], codes[q], digits);
          }
        }
      }
    }
  }
  // Σ (code − 8) · X. The sums of the upper digits fit 16 bits, so that a dot product of pairs, the
  // second of which is dropped, multiplies and adds them.
  HWY_INLINE __m512 total(int r, int q) const {
    static_assert(kDigits == 2 || kDigits == 3);
    const __m512i middle = _mm512_set1_epi32(kMiddle), top = _mm512_set1_epi32(0xffff & kTop);
    const __m512i low = _mm512_dpwssd_epi32(sum[r][q][0], sum[r][q][1], middle);
    if constexpr (kDigits == 2) return _mm512_cvtepi32_ps(low);
    return _mm512_cvtepi32_ps(_mm512_dpwssd_epi32(low, sum[r][q][2], top));
  }
};

// Input rows that are in the sums at the same time.
struct Panel {
  const FixedSegment* x;  // [rows, stride]
  int64_t stride;
  int32_t rows;
};

// The first XR rows of a panel against the quads of a tile over `count` segments.
template <int XR, int kDigits, bool kZeros>
HWY_NOINLINE void fixed_block(const Panel& panel, const Ahead* ahead, const QuadSegment* quad,
                              int32_t count, float* sums) {
  const FixedSegment* input = panel.x;
  for (int32_t segment = 0; segment < count; ++segment, ++quad, ++input) {
    const FixedSegment* x[XR];
    EXODE_UNROLL
    for (int r = 0; r < XR; ++r) x[r] = input + r * panel.stride;
    if (ahead != nullptr) ahead->fetch_rest(segment);
    FixedTile<XR, kDigits> tile;
    tile.start(x);
    tile.add(x, quad);
    EXODE_UNROLL
    for (int q = 0; q < kTileQuads; ++q) {
      EXODE_UNROLL
      for (int r = 0; r < XR; ++r) {
        float* sum = sums + r * kRowSums + q * 16;
        const QuadSegment& own = quad[q * kFixedChunk];
        __m512 total = tile.total(r, q);
        if constexpr (kZeros) {
          total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(broadcast(x[r]->start)), own.shift, total);
        }
        const __m512 scale = _mm512_mul_ps(own.scale, _mm512_set1_ps(x[r]->scale));
        _mm512_store_ps(sum, _mm512_fmadd_ps(total, scale, _mm512_load_ps(sum)));
      }
    }
  }
}

template <int kDigits, bool kZeros>
void tile_panel(Panel left, const Span& segments, const Ahead& next, const QuadSegment* quad,
                float* sums) {
  const int32_t count = segments.end - segments.begin;
  const Ahead* ahead = &next;
  left.x += segments.begin;
  for (; left.rows >= 4; left.rows -= 4, left.x += 4 * left.stride, sums += 4 * kRowSums) {
    fixed_block<4, kDigits, kZeros>(left, ahead, quad, count, sums);
    ahead = nullptr;
  }
  if (left.rows == 3) fixed_block<3, kDigits, kZeros>(left, ahead, quad, count, sums);
  if (left.rows == 2) fixed_block<2, kDigits, kZeros>(left, ahead, quad, count, sums);
  if (left.rows == 1) fixed_block<1, kDigits, kZeros>(left, ahead, quad, count, sums);
}

using TilePanel = void (*)(Panel, const Span&, const Ahead&, const QuadSegment*, float*);
TilePanel tile_panel(const MatMulJob& job) {
  const bool zeros = !job.w->zeros.empty();
  if (job.fast) return zeros ? tile_panel<2, true> : tile_panel<2, false>;
  return zeros ? tile_panel<3, true> : tile_panel<3, false>;
}

// Sums of the lanes that belong to one weight row.
void store_tile(const MatMulJob& job, const Panel& panel, const Span& rows, const float* sums,
                float* out) {
  for (int32_t r = 0; r < panel.rows; ++r) {
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      const __m128 lanes = _mm_load_ps(sums + r * kRowSums + (row - rows.begin) * 4);
      const __m128 pairs = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
      out[r * job.out_stride + row] = _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)));
    }
  }
}

// Tiles that use a chunk of the inputs before the next one, since all chunks of a few rows do not
// fit the first cache; what their sums have room for.
int32_t tiles_together(const Panel& panel) {
  constexpr int32_t kMost = 8;
  return HWY_MIN(kMost, kPanelRows / panel.rows);
}

// Weight rows of such tiles against a panel.
void full_panel(const MatMulJob& job, const Panel& panel, const Span& rows, float* out) {
  const WeightView& w = *job.w;
  const int32_t segments = padded_cols(w.cols) / kInt4Block;
  const int32_t tiles = (rows.end - rows.begin + kTileRows - 1) / kTileRows;
  const int64_t tile_sums = panel.rows * kRowSums;
  auto& work = *reinterpret_cast<Workspace*>(job.scratch);
  const auto tile = [&](int32_t i) {
    const int32_t begin = rows.begin + i * kTileRows;
    return Span{begin, HWY_MIN(begin + kTileRows, rows.end)};
  };
  for (int64_t i = 0; i < tiles * tile_sums; i += 16) {
    _mm512_store_ps(work.sums + i, _mm512_setzero_ps());
  }
  for (Span span{0, 0}; span.begin < segments; span.begin = span.end) {
    span.end = HWY_MIN(span.begin + kFixedChunk, segments);
    for (int32_t i = 0; i < tiles; ++i) {
      const Span own = tile(i);
      const QuadSource quads[kTileQuads] = {{w, own}, {w, {own.begin + kQuad, own.end}}};
      const Ahead ahead = i + 1 < tiles         ? Ahead(w, tile(i + 1).begin, span.begin)
                          : span.end < segments ? Ahead(w, rows.begin, span.end)
                                                : Ahead(w, rows.end, 0);
      decode_tile(quads, span, w.group / kInt4Block, ahead, work);
      tile_panel(job)(panel, span, ahead, work.quads[0], work.sums + i * tile_sums);
    }
  }
  for (int32_t i = 0; i < tiles; ++i) {
    store_tile(job, panel, tile(i), work.sums + i * tile_sums, out);
  }
}

// All input rows against the weight rows, on the calling thread.
void fixed_range(const MatMulJob& job, const Span& rows) {
  const int32_t width = padded_cols(job.w->cols);
  const int64_t stride = width / kInt4Block;
  const int32_t inputs = panel_rows(width);
  for (int32_t input = 0; input < job.rows; input += inputs) {
    const Panel panel{job.fixed + input * stride, stride, HWY_MIN(inputs, job.rows - input)};
    const int32_t together = tiles_together(panel) * kTileRows;
    for (int32_t row = rows.begin; row < rows.end; row += together) {
      const Span some{row, HWY_MIN(row + together, rows.end)};
      full_panel(job, panel, some, job.out + input * job.out_stride);
    }
  }
}

// a where the mask has ones, else b.
HWY_INLINE __m512i choose(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

// The digits of a number in its bytes.
HWY_INLINE __m512i digit_bytes(__m512i x) {
  // Made positive, the lowest digit has 8 bits and each of the others 7; the top one is negated.
  const __m512i y = _mm512_add_epi32(x, _mm512_set1_epi32(128 + 64 * kMiddle - 64 * kTop));
  const __m512i first_bit = _mm512_set1_epi64(0x00'2f'28'20'00'0f'08'00);
  const __m512i bits = _mm512_and_si512(_mm512_multishift_epi64_epi8(first_bit, y),
                                        _mm512_set1_epi32(0x00'7f'7f'ff));
  const __m512i negated = _mm512_xor_si512(bits, _mm512_set1_epi32(0x00'ff'00'00));
  return _mm512_add_epi8(negated, _mm512_set1_epi32(0x00'41'c0'80));
}

// The digits of 4 · 16 numbers.
HWY_INLINE void arrange_digits(const __m512i (&x)[4], __m512i (&digits)[3]) {
  const __m512i even = _mm512_set1_epi32(0x00ff00ff), low = _mm512_set1_epi32(0x0000ffff);
  __m512i v[4];
  EXODE_UNROLL
  for (int b = 0; b < 4; ++b) v[b] = digit_bytes(x[b]);
  // Bytes 0, 0, 2, 2 of two numbers in turn, and bytes 1, 1.
  const __m512i even01 = choose(even, v[0], _mm512_slli_epi32(v[1], 8));
  const __m512i even23 = choose(even, v[2], _mm512_slli_epi32(v[3], 8));
  const __m512i odd01 = choose(even, _mm512_srli_epi32(v[0], 8), v[1]);
  const __m512i odd23 = choose(even, _mm512_srli_epi32(v[2], 8), v[3]);
  digits[0] = choose(low, even01, _mm512_slli_epi32(even23, 16));
  digits[1] = choose(low, odd01, _mm512_slli_epi32(odd23, 16));
  digits[2] = choose(low, _mm512_srli_epi32(even01, 16), even23);
}

// The largest input becomes 63 times what the top digit counts, so that the other digits fit beside
// it. Without the third digit that is zero.
constexpr float kLargest = -63.0f * kTop, kLargestFast = 63.0f * kMiddle;

void convert_segment(const float* x, float to, FixedSegment& out) {
  constexpr int32_t kInfinity = 0x7f800000;
  __m512 v[8];
  // As integers, infinity and what is not a number are larger than all numbers.
  __m512i largest = _mm512_setzero_si512();
  EXODE_UNROLL
  for (int i = 0; i < 8; ++i) {
    v[i] = _mm512_loadu_ps(x + i * 16);
    largest = _mm512_max_epi32(largest, _mm512_castps_si512(_mm512_abs_ps(v[i])));
  }
  const int32_t most = _mm512_reduce_max_epi32(largest);
  const bool finite = most < kInfinity;
  // Below this the factor would overflow.
  const float unit = HWY_MAX(_mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(most))), 0x1p-100f);
  // One value that is not a number makes the whole product such.
  out.scale = finite ? unit / to : __builtin_nanf("");
  const __m512 factor = _mm512_set1_ps(finite ? to / unit : 0.0f);
  __m512i total = _mm512_setzero_si512();
  EXODE_UNROLL
  for (int h = 0; h < 2; ++h) {
    __m512i fixed[4], digits[3];
    EXODE_UNROLL
    for (int b = 0; b < 4; ++b) {
      fixed[b] = _mm512_cvtps_epi32(_mm512_mul_ps(v[2 * b + h], factor));
      total = _mm512_add_epi32(total, fixed[b]);
    }
    arrange_digits(fixed, digits);
    EXODE_UNROLL
    for (int d = 0; d < 3; ++d) _mm512_store_si512(out.digits[d][h], digits[d]);
  }
  const __m256i half =
      _mm256_add_epi32(_mm512_castsi512_si256(total), _mm512_extracti64x4_epi64(total, 1));
  const __m128i quarter =
      _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  _mm_store_si128(reinterpret_cast<__m128i*>(out.start),
                  _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(quarter, 3)));
}

}  // namespace
}  // namespace exode::cpu
HWY_POP_ATTRIBUTES
HWY_DIAGNOSTICS(pop)

namespace exode::cpu {

bool takes_fixed(const WeightView& w) {
  // Highway's AVX3_DL stands for all extensions named above but GFNI.
  static const bool machine =
      (hwy::SupportedTargets() & HWY_AVX3_DL) != 0 && __builtin_cpu_supports("gfni");
  return machine && w.layout == WeightLayout::kInt4Group && w.group % kInt4Block == 0;
}

namespace {

// Segments [begin, end) of the inputs, counted row by row.
void convert(const MatMulJob& job, int32_t begin, int32_t end) {
  const int32_t segments = padded_cols(job.w->cols) / kInt4Block;
  for (int32_t i = begin; i < end; ++i) {
    convert_segment(job.x + i / segments * job.x_stride + i % segments * kInt4Block,
                    job.fast ? kLargestFast : kLargest, job.fixed[i]);
  }
}

}  // namespace

void matmul_fixed(ThreadPool& pool, MatMulJob job) {
  const int32_t segments = padded_cols(job.w->cols) / kInt4Block;
  if (job.rows <= kOwnFixedRows) {
    split_outputs(pool, job, [&](MatMulJob& own, int32_t part, const Span& outputs) {
      own.fixed += int64_t{part} * job.rows * segments;
      convert(own, 0, job.rows * segments);
      fixed_range(own, outputs);
    });
    return;
  }
  const int32_t all = job.rows;
  for (int32_t first = 0; first < all; first += kFixedRows) {
    job.rows = std::min(kFixedRows, all - first);
    constexpr int32_t kGrain = 64;  // some 2 µs
    pool.parallel_for(job.rows * segments, kGrain,
                      [&](int32_t begin, int32_t end) { convert(job, begin, end); });
    split_outputs(pool, job, [&](const MatMulJob& own, int32_t, const Span& outputs) {
      fixed_range(own, outputs);
    });
    job.x += job.rows * job.x_stride;
    job.out += job.rows * job.out_stride;
  }
}

}  // namespace exode::cpu
