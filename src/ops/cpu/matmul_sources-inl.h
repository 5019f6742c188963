// Where the matmul kernel gets its weights: each source turns 128 inputs of a weight row into
// vectors in input order. Included once per SIMD target.
#if defined(EXODE_MATMUL_SOURCES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXODE_MATMUL_SOURCES_INL
#undef EXODE_MATMUL_SOURCES_INL
#else
#define EXODE_MATMUL_SOURCES_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>
#include <utility>

#include "ops/cpu/matmul_kernel.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace exode::cpu::HWY_NAMESPACE {

constexpr size_t kParts = kInt4Block / kLanes;  // vectors per segment

// Weight rows from `row`, input rows from `input`, segments [begin, end).
struct Range {
  int32_t row, input, begin, end;
};

template <class Source, size_t... P>
HWY_INLINE void store_parts(const typename Source::Line& line, float* out,
                            std::index_sequence<P...>) {
  (hn::StoreU(Source::template part<P>(line), D(), out + P * kLanes), ...);
}

// A source has: kGroups, scale groups per segment; Line, what it keeps of one row and segment;
// line(row, segment); part<P>(line) when kUnrolled, else part_at(line, p): values p·kLanes… of the
// segment before scaling; scale(); has_zeros() and zero_shift() = 8 − zero; pads(), whether it can
// only be used decoded.

template <int kGroupsPerSegment>
class Int4Source {
 public:
  static constexpr size_t kGroups = kGroupsPerSegment;
  static constexpr bool kUnrolled = true;
  using DU = hn::RebindToUnsigned<D>;
  static constexpr size_t kWords = 16 / kLanes;
  struct Line {
    hn::Vec<DU> words[kWords];
  };

  explicit Int4Source(const WeightView& w)
      : codes_(reinterpret_cast<const uint8_t*>(w.codes.data)),
        row_bytes_(w.codes.row_stride),
        scales_(w.scales.row<float>(0)),
        scale_stride_(w.scales.row_stride),
        zeros_(w.zeros.empty() ? nullptr : w.zeros.row<uint8_t>(0)),
        zero_stride_(w.zeros.row_stride),
        segments_per_scale_(w.group > kInt4Block ? w.group / kInt4Block : 1),
        groups_(w.scales.cols()) {}

  HWY_INLINE Line line(int32_t row, int32_t segment) const {
    const uint8_t* p = codes_ + row * row_bytes_ + int64_t{segment} * 64;
    // The same place of the next rows that the kernel takes together. Four short streams at once
    // defeat the hardware prefetcher, and a distance along the row would miss their starts.
    hwy::Prefetch(p + kQuad * row_bytes_);
    Line out;
    _Pragma("GCC unroll 4") for (size_t i = 0; i < kWords; ++i) {
      out.words[i] = hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(p) + i * kLanes);
    }
    return out;
  }
  template <size_t P>
  static HWY_INLINE V part(const Line& line) {
    constexpr size_t kOffset = P * kLanes;
    const auto words = line.words[kOffset % 16 / kLanes];
    constexpr int kShift = static_cast<int>(kOffset / 16 * 4);
    if constexpr (kShift == 0) {
      return lookup(words);
    } else {
      return lookup(hn::ShiftRight<kShift>(words));
    }
  }
  HWY_INLINE float scale(int32_t row, int32_t segment, int32_t group) const {
    return scales_[row * scale_stride_ + index(segment, group)];
  }
  // The packer pads to whole segments. With four lanes the unrolled kernel would not fit registers.
  static constexpr bool pads() { return kLanes < 8; }
  void decode_segment(int32_t row, int32_t segment, float* out) const {
    store_parts<Int4Source>(line(row, segment), out, std::make_index_sequence<kParts>());
  }
  bool has_zeros() const { return zeros_ != nullptr; }
  HWY_INLINE float zero_shift(int32_t row, int32_t segment, int32_t group) const {
    return 8.0f - static_cast<float>(zeros_[row * zero_stride_ + index(segment, group)]);
  }

 private:
  // The last group may be short: groups past the end belong to padding, whose codes are 8.
  HWY_INLINE int64_t index(int32_t segment, int32_t group) const {
    // A division for every segment would cost as much as its multiply-adds.
    const int32_t whole = segments_per_scale_ == 1 ? segment : segment / segments_per_scale_;
    const int32_t i = whole * kGroupsPerSegment + group;
    return i < groups_ ? i : groups_ - 1;
  }
  // Code in the low four bits of each lane, anything above → code − 8.
  static HWY_INLINE V lookup(hn::Vec<DU> bits) {
#if HWY_TARGET <= HWY_AVX3
    // vpermps reads only the low four bits of an index: no mask, no conversion.
    const __m512 table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return V{_mm512_permutexvar_ps(bits.raw, table)};
#else
    const hn::RebindToSigned<D> di;
    const auto code = hn::And(bits, hn::Set(DU(), 15u));
    return hn::Sub(hn::ConvertTo(D(), hn::BitCast(di, code)), hn::Set(D(), 8.0f));
#endif
  }

  const uint8_t* codes_;
  int64_t row_bytes_;
  const float* scales_;
  int64_t scale_stride_;
  const uint8_t* zeros_;
  int64_t zero_stride_;
  int32_t segments_per_scale_;
  int32_t groups_;
};

struct E4m3 {
  using Code = uint8_t;
  // Exponent and mantissa moved into place and the bias corrected; subnormal codes are counted in
  // their unit instead, since a subnormal float on the way would cost a microcode assist.
  static HWY_INLINE V decode(const uint8_t* p) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<uint8_t, D> d8;
    const auto bits = hn::PromoteTo(du, hn::LoadU(d8, p));
    const auto code = hn::And(bits, hn::Set(du, 0x7fu));
    const V normal = hn::BitCast(D(), hn::Add(hn::ShiftLeft<20>(code), hn::Set(du, 120u << 23)));
    const V small = hn::Mul(hn::ConvertTo(D(), hn::BitCast(di, code)), hn::Set(D(), 0x1p-9f));
    const auto is_small = hn::RebindMask(D(), hn::Lt(hn::BitCast(di, code), hn::Set(di, 8)));
    const V sign = hn::BitCast(D(), hn::ShiftLeft<24>(hn::And(bits, hn::Set(du, 0x80u))));
    return hn::Or(hn::IfThenElse(is_small, small, normal), sign);
  }
};

struct OffsetInt8 {
  using Code = uint8_t;
  static HWY_INLINE V decode(const uint8_t* p) {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<uint8_t, D> d8;
    const auto code = hn::PromoteTo(di, hn::LoadU(d8, p));
    return hn::ConvertTo(D(), hn::Sub(code, hn::Set(di, kInt8Zero)));
  }
};

// Rows of plain codes. A short last segment must not be read past the row: decode_segment() copies
// it, and the kernel runs on decoded rows whenever there is one (pads() is true).
template <class Format>
class RowSource {
 public:
  static constexpr bool kUnrolled = false;
  using Code = typename Format::Code;
  struct Line {
    const Code* p = nullptr;
  };

  explicit RowSource(const WeightView& w)
      : codes_(reinterpret_cast<const Code*>(w.codes.data)),
        stride_(w.codes.row_stride),
        cols_(w.cols) {}

  HWY_INLINE Line line(int32_t row, int32_t segment) const {
    return {codes_ + row * stride_ + int64_t{segment} * kInt4Block};
  }
  static HWY_INLINE V part_at(const Line& line, size_t p) {
    return Format::decode(line.p + p * kLanes);
  }
  bool pads() const { return cols_ % kInt4Block != 0; }
  void decode_segment(int32_t row, int32_t segment, float* out) const {
    const int32_t left = cols_ - segment * kInt4Block;
    Code tail[kInt4Block] = {};
    Line source = line(row, segment);
    if (left < kInt4Block) {
      std::memcpy(tail, source.p, static_cast<size_t>(left) * sizeof(Code));
      source.p = tail;
    }
    for (size_t p = 0; p < kParts; ++p) hn::StoreU(part_at(source, p), D(), out + p * kLanes);
  }
  bool has_zeros() const { return false; }
  float zero_shift(int32_t, int32_t, int32_t) const { return 0; }

 private:
  const Code* codes_;
  int64_t stride_;
  int32_t cols_;
};

template <class Format>
class DenseSource : public RowSource<Format> {
 public:
  static constexpr size_t kGroups = 1;
  using RowSource<Format>::RowSource;
  static constexpr float scale(int32_t, int32_t, int32_t) { return 1; }
};

class Fp8Source : public RowSource<E4m3> {
 public:
  static constexpr size_t kGroups = 1;
  explicit Fp8Source(const WeightView& w)
      : RowSource(w),
        scales_(w.scales.row<float>(0)),
        stride_(w.scales.row_stride),
        block_(w.group) {}
  HWY_INLINE float scale(int32_t row, int32_t segment, int32_t) const {
    return scales_[row / block_ * stride_ + int64_t{segment} * kInt4Block / block_];
  }

 private:
  const float* scales_;
  int64_t stride_;
  int32_t block_;
};

class Int8Source : public RowSource<OffsetInt8> {
 public:
  static constexpr size_t kGroups = 1;
  explicit Int8Source(const WeightView& w)
      : RowSource(w),
        scales_(w.scales.row<float>(0)),
        stride_(w.scales.row_stride),
        segments_per_scale_(w.group / kInt8Block) {}
  HWY_INLINE float scale(int32_t row, int32_t segment, int32_t) const {
    const int32_t group = segments_per_scale_ == 1 ? segment : segment / segments_per_scale_;
    return scales_[row * stride_ + group];
  }
  static constexpr bool pads() { return false; }  // rows are whole segments
  void decode_segment(int32_t row, int32_t segment, float* out) const {
    const Line source = line(row, segment);
    for (size_t p = 0; p < kParts; ++p) hn::StoreU(part_at(source, p), D(), out + p * kLanes);
  }

 private:
  const float* scales_;
  int64_t stride_;
  int32_t segments_per_scale_;
};

// A few rows and segments of another source decoded into memory, so that many input rows can reuse
// them.
template <class Source>
class Decoded {
 public:
  static constexpr size_t kGroups = Source::kGroups;
  static constexpr bool kUnrolled = false;
  struct Line {
    const float* p = nullptr;
  };

  Decoded(const Source& source, const Range& r, int32_t rows, float* memory)
      : source_(source), first_(r.row), begin_(r.begin), memory_(memory) {
    for (int32_t n = 0; n < rows; ++n) {
      for (int32_t segment = r.begin; segment < r.end; ++segment) {
        source.decode_segment(r.row + n, segment, at(n, segment));
      }
    }
  }
  HWY_INLINE Line line(int32_t row, int32_t segment) const { return {at(row - first_, segment)}; }
  static HWY_INLINE V part_at(const Line& line, size_t p) {
    return hn::LoadU(D(), line.p + p * kLanes);
  }
  HWY_INLINE float scale(int32_t row, int32_t segment, int32_t group) const {
    return source_.scale(row, segment, group);
  }
  bool has_zeros() const { return source_.has_zeros(); }
  float zero_shift(int32_t row, int32_t segment, int32_t group) const {
    return source_.zero_shift(row, segment, group);
  }

 private:
  HWY_INLINE float* at(int32_t n, int32_t segment) const {
    return memory_ + (n * kDecodedSegments + segment - begin_) * kInt4Block;
  }

  const Source& source_;
  int32_t first_;
  int32_t begin_;
  float* memory_;
};

}  // namespace exode::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
