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
