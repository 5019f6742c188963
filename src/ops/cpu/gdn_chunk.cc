#include "ops/cpu/gdn_chunk.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/gdn_chunk.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace exode::cpu::HWY_NAMESPACE {

constexpr int32_t kRows = kGdnChunk;

// out[m, n] = a_m · b_n for a 4 × 4 tile of rows.
HWY_INLINE void dot_tile(const float* a, const float* b, int32_t width, float* out, int64_t out_stride) {
  V sum[4][4];
  _Pragma("GCC unroll 4") for (auto& row : sum) {
    _Pragma("GCC unroll 4") for (V& cell : row) cell = hn::Zero(D());
  }
  for (int32_t i = 0; i < width; i += kLanes) {
    V left[4], right[4];
    _Pragma("GCC unroll 4") for (int r = 0; r < 4; ++r) {
      left[r] = hn::LoadU(D(), a + int64_t{r} * width + i);
      right[r] = hn::LoadU(D(), b + int64_t{r} * width + i);
    }
    _Pragma("GCC unroll 4") for (int m = 0; m < 4; ++m) {
      _Pragma("GCC unroll 4") for (int n = 0; n < 4; ++n) sum[m][n] = hn::MulAdd(left[m], right[n], sum[m][n]);
    }
  }
  _Pragma("GCC unroll 4") for (int m = 0; m < 4; ++m) {
    _Pragma("GCC unroll 4") for (int n = 0; n < 4; ++n) {
      out[m * out_stride + n] = hn::GetLane(hn::SumOfLanes(D(), sum[m][n]));
    }
  }
}

// out[m, n] = a_m · b_n, rows of both dense and `width` long; m and n counts are multiples of 4.
// `lower` leaves tiles strictly above the diagonal alone.
void dots(const float* a, int32_t a_rows, const float* b, int32_t b_rows, int32_t width, float* out, bool lower) {
  for (int32_t m = 0; m < a_rows; m += 4) {
    for (int32_t n = 0; n < (lower ? m + 4 : b_rows); n += 4) {
      dot_tile(a + int64_t{m} * width, b + int64_t{n} * width, width, out + int64_t{m} * b_rows + n, b_rows);
    }
  }
}

// out += scale · x
HWY_INLINE void axpy(float scale, const float* x, float* out, int32_t width) {
  const V factor = hn::Set(D(), scale);
  for (int32_t i = 0; i < width; i += kLanes) {
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(D(), x + i), hn::LoadU(D(), out + i)), D(), out + i);
  }
}

// Forward substitution in place: rows of d hold the right-hand sides, then the corrections.
void solve(const float* keys, const float* decay, const DeltaChunk& c, float* d) {
  for (int32_t t = 0; t < kRows; ++t) {
    const float beta = c.beta[t * c.gate_stride];
    float* row = d + int64_t{t} * c.value_dim;
    for (int32_t s = 0; s < t; ++s) {
      axpy(-beta * keys[t * kRows + s] * decay[t * kRows + s], d + int64_t{s} * c.value_dim, row, c.value_dim);
    }
  }
}

// state[v] = carry · state[v] + Σ_t weight_t d_t[v] k_t
void update_state(const DeltaChunk& c, const float* d, const float* weight, float carry) {
  const V factor = hn::Set(D(), carry);
  for (int32_t v = 0; v < c.value_dim; ++v) {
    float* row = c.state + int64_t{v} * c.key_dim;
    float scaled[kRows];
    for (int32_t t = 0; t < kRows; ++t) scaled[t] = weight[t] * d[int64_t{t} * c.value_dim + v];
    for (int32_t first = 0; first < c.key_dim; first += 4 * kLanes) {
      V sum[4];
      const int32_t count = std::min(4, (c.key_dim - first) / kLanes);
      for (int32_t j = 0; j < count; ++j) sum[j] = hn::Mul(factor, hn::LoadU(D(), row + first + j * kLanes));
      for (int32_t t = 0; t < kRows; ++t) {
        const V value = hn::Set(D(), scaled[t]);
        const float* k = c.k + int64_t{t} * c.key_dim + first;
        for (int32_t j = 0; j < count; ++j) sum[j] = hn::MulAdd(value, hn::LoadU(D(), k + j * kLanes), sum[j]);
      }
      for (int32_t j = 0; j < count; ++j) hn::StoreU(sum[j], D(), row + first + j * kLanes);
    }
  }
}

void delta_chunk(const DeltaChunk& c) {
  float* keys = c.scratch;               // k_t · k_s
  float* queries = keys + kRows * kRows;  // q_t · k_s
  float* decay = queries + kRows * kRows;  // Γ_ts
  float* d = decay + kRows * kRows;       // [kRows, value_dim]
  float* read = d + int64_t{kRows} * c.value_dim;  // S k_t, then S q_t
  float total[kRows], weight[kRows];
  float sum = 0;
  for (int32_t t = 0; t < kRows; ++t) {
    sum += c.g[t * c.gate_stride];
    total[t] = sum;
    for (int32_t s = 0; s <= t; ++s) decay[t * kRows + s] = std::exp(total[t] - total[s]);
  }
  dots(c.k, kRows, c.k, kRows, c.key_dim, keys, true);
  dots(c.q, kRows, c.k, kRows, c.key_dim, queries, true);
  dots(c.k, kRows, c.state, c.value_dim, c.key_dim, read, false);
  for (int32_t t = 0; t < kRows; ++t) {
    const float beta = c.beta[t * c.gate_stride], carried = std::exp(total[t]);
    const float* v = c.v + t * c.v_stride;
    for (int32_t i = 0; i < c.value_dim; ++i) {
      const int64_t at = int64_t{t} * c.value_dim + i;
      d[at] = beta * (v[i] - carried * read[at]);
    }
  }
  solve(keys, decay, c, d);
  dots(c.q, kRows, c.state, c.value_dim, c.key_dim, read, false);
  for (int32_t t = 0; t < kRows; ++t) {
    const float carried = std::exp(total[t]);
    float* out = c.out + t * c.out_stride;
    for (int32_t i = 0; i < c.value_dim; ++i) out[i] = carried * read[int64_t{t} * c.value_dim + i];
    for (int32_t s = 0; s <= t; ++s) {
      axpy(queries[t * kRows + s] * decay[t * kRows + s], d + int64_t{s} * c.value_dim, out, c.value_dim);
    }
    weight[t] = std::exp(sum - total[t]);
  }
  update_state(c, d, weight, std::exp(sum));
}

}  // namespace exode::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exode::cpu {

HWY_EXPORT(delta_chunk);

size_t delta_chunk_scratch(int32_t value_dim) {
  constexpr size_t kSquare = size_t{kGdnChunk} * kGdnChunk;
  return 3 * kSquare + 2 * kGdnChunk * static_cast<size_t>(value_dim);
}

void delta_chunk(const DeltaChunk& chunk) { HWY_DYNAMIC_DISPATCH(delta_chunk)(chunk); }

}  // namespace exode::cpu
#endif  // HWY_ONCE
