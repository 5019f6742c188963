// Vector helpers of the CPU kernels: dot product, tails, exp-based activations. Included once per
// SIMD target.
#if defined(EXODE_VECTOR_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXODE_VECTOR_MATH_INL
#undef EXODE_VECTOR_MATH_INL
#else
#define EXODE_VECTOR_MATH_INL
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace exode::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int32_t kLanes = static_cast<int32_t>(hn::MaxLanes(D()));

// How stored numbers become vectors.
struct F32 {
  using Code = float;
  static HWY_INLINE V decode(const float* p) { return hn::LoadU(D(), p); }
};
struct Bf16 {
  using Code = uint16_t;
  static HWY_INLINE V decode(const uint16_t* p) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<uint16_t, D> d16;
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, p))));
  }
};
struct F16 {
  using Code = uint16_t;
  static HWY_INLINE V decode(const uint16_t* p) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(D(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  }
};

// Calls body(i, load, store) for each vector of [0, width); the last one may be partial, where
// load fills missing lanes with zero and store leaves them alone.
template <class Body>
HWY_INLINE void for_each_vector(int32_t width, const Body& body) {
  int32_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    body(
        i, [](const float* p) HWY_ATTR { return hn::LoadU(D(), p); },
        [](float* p, V v) HWY_ATTR { hn::StoreU(v, D(), p); });
  }
  if (i == width) return;
  const auto count = static_cast<size_t>(width - i);
  body(
      i,
      [count](const float* p) HWY_ATTR {
        float lanes[kLanes] = {};
        for (size_t k = 0; k < count; ++k) lanes[k] = p[k];
        return hn::LoadU(D(), lanes);
      },
      [count](float* p, V v) HWY_ATTR {
        float lanes[kLanes];
        hn::StoreU(v, D(), lanes);
        for (size_t k = 0; k < count; ++k) p[k] = lanes[k];
      });
}

// Two running sums hide the latency of the adds; the order is fixed.
HWY_INLINE float dot(const float* a, const float* b, int32_t count) {
  V even = hn::Zero(D()), odd = hn::Zero(D());
  int32_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    even = hn::MulAdd(hn::LoadU(D(), a + i), hn::LoadU(D(), b + i), even);
    odd = hn::MulAdd(hn::LoadU(D(), a + i + kLanes), hn::LoadU(D(), b + i + kLanes), odd);
  }
  for (; i + kLanes <= count; i += kLanes) {
    even = hn::MulAdd(hn::LoadU(D(), a + i), hn::LoadU(D(), b + i), even);
  }
  float sum = hn::GetLane(hn::SumOfLanes(D(), hn::Add(even, odd)));
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// Adds the 128-bit blocks of v; lane j of the result goes to out[j], j < 4.
template <class DV>
HWY_INLINE void store_block_sum(DV d, hn::Vec<DV> v, float* out) {
  if constexpr (hn::MaxLanes(DV()) == 4) {
    hn::StoreU(v, d, out);
  } else {
    const hn::Half<DV> half;
    store_block_sum(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), out);
  }
}

// out[0, 4) = sums over lanes of four vectors, each in the same order: a third of the shuffles of
// four SumOfLanes.
HWY_INLINE void store_sums(V a, V b, V c, V d, float* out) {
  const hn::RepartitionToWide<D> wide;
  const V ab = hn::Add(hn::InterleaveLower(D(), a, b), hn::InterleaveUpper(D(), a, b));
  const V cd = hn::Add(hn::InterleaveLower(D(), c, d), hn::InterleaveUpper(D(), c, d));
  const auto wide_ab = hn::BitCast(wide, ab), wide_cd = hn::BitCast(wide, cd);
  const V lower = hn::BitCast(D(), hn::InterleaveLower(wide, wide_ab, wide_cd));
  const V upper = hn::BitCast(D(), hn::InterleaveUpper(wide, wide_ab, wide_cd));
  store_block_sum(D(), hn::Add(lower, upper), out);
}

// out_m ← scale_m out_m + Σ_t weights_m[t] rows[t] for kCount outputs that share the rows. Each
// output is summed on its own, in the order of t.
template <int kCount>
struct WeightedRows {
  const float* weights[kCount];
  float scale[kCount];
  float* out[kCount];
};

template <class Format, int kWide, int kCount>
HWY_INLINE void add_row_columns(const WeightedRows<kCount>& s, const typename Format::Code* rows,
                                int64_t stride, int32_t begin, int32_t end) {
  V sum[kCount][kWide];
  _Pragma("GCC unroll 4") for (int m = 0; m < kCount; ++m) {
    const V scale = hn::Set(D(), s.scale[m]);
    _Pragma("GCC unroll 8") for (int w = 0; w < kWide; ++w) {
      sum[m][w] = hn::Mul(hn::LoadU(D(), s.out[m] + w * kLanes), scale);
    }
  }
  for (int32_t t = begin; t < end; ++t) {
    V value[kWide];
    _Pragma("GCC unroll 8") for (int w = 0; w < kWide; ++w) {
      value[w] = Format::decode(rows + t * stride + w * kLanes);
    }
    _Pragma("GCC unroll 4") for (int m = 0; m < kCount; ++m) {
      const V weight = hn::Set(D(), s.weights[m][t]);
      _Pragma("GCC unroll 8") for (int w = 0; w < kWide; ++w) {
        sum[m][w] = hn::MulAdd(weight, value[w], sum[m][w]);
      }
    }
  }
  _Pragma("GCC unroll 4") for (int m = 0; m < kCount; ++m) {
    _Pragma("GCC unroll 8") for (int w = 0; w < kWide; ++w) {
      hn::StoreU(sum[m][w], D(), s.out[m] + w * kLanes);
    }
  }
}

// Rows are `stride` apart and as wide; the width is a multiple of kLanes.
template <class Format, int kCount>
HWY_INLINE void add_rows(WeightedRows<kCount> s, const typename Format::Code* rows, int64_t stride,
                         int32_t begin, int32_t end) {
  constexpr int kWide = 8 / kCount;  // eight sums hide the latency of the multiply-add
  const auto advance = [&](int64_t columns) HWY_ATTR {
    for (float*& out : s.out) out += columns;
    rows += columns;
  };
  int64_t left = stride;
  for (; left >= kWide * kLanes; left -= kWide * kLanes) {
    add_row_columns<Format, kWide>(s, rows, stride, begin, end);
    advance(kWide * kLanes);
  }
  for (; left > 0; left -= kLanes) {
    add_row_columns<Format, 1>(s, rows, stride, begin, end);
    advance(kLanes);
  }
}

// hn::Exp builds wrong exponents above about 177; e^100 is infinity already, which gives 0 here.
HWY_INLINE V sigmoid(V x) {
  const V one = hn::Set(D(), 1.0f);
  const V power = hn::Exp(D(), hn::Min(hn::Neg(x), hn::Set(D(), 100.0f)));
  return hn::Div(one, hn::Add(one, power));
}

HWY_INLINE V silu(V x) { return hn::Mul(x, sigmoid(x)); }

}  // namespace exode::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
