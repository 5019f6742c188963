#include "ops/cpu/gdn_chunk.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/gdn_chunk.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace exode::cpu::HWY_NAMESPACE {

constexpr int32_t kRows = kGdnChunk;

// out[m, n] = a_m · b_n for a 4 × 4 tile of rows.
HWY_INLINE void dot_tile(const float* a, const float* b, int32_t width, float* out,
                         int64_t out_stride) {
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
      _Pragma("GCC unroll 4") for (int n = 0; n < 4; ++n) {
        sum[m][n] = hn::MulAdd(left[m], right[n], sum[m][n]);
      }
    }
  }
  _Pragma("GCC unroll 4") for (int m = 0; m < 4; ++m) {
    store_sums(sum[m][0], sum[m][1], sum[m][2], sum[m][3], out + m * out_stride);
  }
}

// out[m, n] = a_m · b_n, rows of both dense and `width` long; m and n counts are multiples of 4.
// `lower` leaves tiles strictly above the diagonal alone.
void dots(const float* a, int32_t a_rows, const float* b, int32_t b_rows, int32_t width, float* out,
          bool lower) {
  for (int32_t m = 0; m < a_rows; m += 4) {
    for (int32_t n = 0; n < (lower ? m + 4 : b_rows); n += 4) {
      dot_tile(a + int64_t{m} * width, b + int64_t{n} * width, width, out + int64_t{m} * b_rows + n,
               b_rows);
    }
  }
}

// The log decays, summed. Differences of G are small beside G itself when one token forgets nearly
// everything, so each sum is kept as high + low.
struct Decays {
  HWY_ALIGN float high[kRows];
  HWY_ALIGN float low[kRows];
  HWY_ALIGN float carried[kRows];  // e^(G_t)
  HWY_ALIGN float weight[kRows];   // e^(G_C − G_t)

  explicit Decays(const DeltaChunk& c) {
    double total = 0;
    for (int32_t t = 0; t < kRows; ++t) {
      total += static_cast<double>(c.g[t * c.gate_stride]);
      high[t] = static_cast<float>(total);
      low[t] = static_cast<float>(total - static_cast<double>(high[t]));
    }
    for (int32_t t = 0; t < kRows; t += kLanes) {
      hn::StoreU(hn::Exp(D(), hn::LoadU(D(), high + t)), D(), carried + t);
    }
    for (int32_t t = 0; t < kRows; t += kLanes) hn::StoreU(between(kRows - 1, t), D(), weight + t);
  }
  // e^(G_t − G_s) for kLanes values of s.
  HWY_INLINE V between(int32_t t, int32_t s) const {
    const V coarse = hn::Sub(hn::Set(D(), high[t]), hn::LoadU(D(), high + s));
    const V fine = hn::Sub(hn::Set(D(), low[t]), hn::LoadU(D(), low + s));
    return hn::Exp(D(), hn::Add(coarse, fine));
  }
};

// keys[t, s] ← −β_t (k_t·k_s) Γ_ts and queries[t, s] ← (q_t·k_s) Γ_ts; 0 above the diagonal.
void apply_decay(const DeltaChunk& c, const Decays& decays, float* keys, float* queries) {
  for (int32_t t = 0; t < kRows; ++t) {
    float *key_row = keys + t * kRows, *query_row = queries + t * kRows;
    const V minus_beta = hn::Set(D(), -c.beta[t * c.gate_stride]);
    for (int32_t s = 0; s <= t; s += kLanes) {
      const V decay = decays.between(t, s);
      const V key = hn::Mul(hn::LoadU(D(), key_row + s), minus_beta);
      hn::StoreU(hn::Mul(key, decay), D(), key_row + s);
      hn::StoreU(hn::Mul(hn::LoadU(D(), query_row + s), decay), D(), query_row + s);
    }
    std::fill(key_row + t + 1, key_row + kRows, 0.0f);
    std::fill(query_row + t + 1, query_row + kRows, 0.0f);
  }
}

// d_t = β_t (v_t − e^{G_t} S k_t), with S k_t in `read`.
void fill_right_sides(const DeltaChunk& c, const Decays& decays, const float* read, float* d) {
  for (int32_t t = 0; t < kRows; ++t) {
    const V beta = hn::Set(D(), c.beta[t * c.gate_stride]);
    const V carried = hn::Set(D(), decays.carried[t]);
    const int64_t row = int64_t{t} * c.value_dim;
    for (int32_t i = 0; i < c.value_dim; i += kLanes) {
      const V predicted = hn::Mul(carried, hn::LoadU(D(), read + row + i));
      const V v = hn::LoadU(D(), c.v + t * c.v_stride + i);
      hn::StoreU(hn::Mul(beta, hn::Sub(v, predicted)), D(), d + row + i);
    }
  }
}

// Rows [t, t + 4) of `out` [kRows, value_dim] ← scale out + coefficients [kRows, kRows] d, over the
// rows [0, end) of d.
HWY_INLINE void add_corrections(const DeltaChunk& c, const float* coefficients, const float* scale,
                                const float* d, int32_t t, int32_t end, float* out) {
  WeightedRows<4> rows{};
  for (int32_t r = 0; r < 4; ++r) {
    rows.weights[r] = coefficients + (t + r) * kRows;
    rows.scale[r] = scale == nullptr ? 1.0f : scale[t + r];
    rows.out[r] = out + int64_t{t + r} * c.value_dim;
  }
  add_rows<F32>(rows, d, c.value_dim, 0, end);
}

// Forward substitution in place: rows of d hold the right-hand sides, then the corrections.
void solve(const DeltaChunk& c, const float* coefficients, float* d) {
  for (int32_t t = 0; t < kRows; t += 4) {
    add_corrections(c, coefficients, nullptr, d, t, t, d);
    for (int32_t r = t + 1; r < t + 4; ++r) {
      const WeightedRows<1> row{.weights = {coefficients + r * kRows},
                                .scale = {1.0f},
                                .out = {d + int64_t{r} * c.value_dim}};
      add_rows<F32>(row, d, c.value_dim, t, r);
    }
  }
}

// S ← e^{G_C} S + Σ_t e^{G_C − G_t} d_t k_tᵀ, four value rows at a time.
void update_state(const DeltaChunk& c, const Decays& decays, const float* d) {
  float scaled[4][kRows];
  for (int32_t v = 0; v < c.value_dim; v += 4) {
    for (int32_t t = 0; t < kRows; ++t) {
      const float* values = d + int64_t{t} * c.value_dim + v;
      for (int32_t r = 0; r < 4; ++r) scaled[r][t] = decays.weight[t] * values[r];
    }
    WeightedRows<4> rows{};
    for (int32_t r = 0; r < 4; ++r) {
      rows.weights[r] = scaled[r];
      rows.scale[r] = decays.carried[kRows - 1];
      rows.out[r] = c.state + int64_t{v + r} * c.key_dim;
    }
    add_rows<F32>(rows, c.k, c.key_dim, 0, kRows);
  }
}

void delta_chunk(const DeltaChunk& c) {
  float* keys = c.scratch;                         // k_t · k_s
  float* queries = keys + kRows * kRows;           // q_t · k_s
  float* d = queries + kRows * kRows;              // [kRows, value_dim]
  float* read = d + int64_t{kRows} * c.value_dim;  // S k_t, then S q_t, then out
  const Decays decays(c);
  dots(c.k, kRows, c.k, kRows, c.key_dim, keys, true);
  dots(c.q, kRows, c.k, kRows, c.key_dim, queries, true);
  apply_decay(c, decays, keys, queries);
  dots(c.k, kRows, c.state, c.value_dim, c.key_dim, read, false);
  fill_right_sides(c, decays, read, d);
  solve(c, keys, d);
  dots(c.q, kRows, c.state, c.value_dim, c.key_dim, read, false);
  for (int32_t t = 0; t < kRows; t += 4) {
    add_corrections(c, queries, decays.carried, d, t, t + 4, read);
  }
  for (int32_t t = 0; t < kRows; ++t) {
    std::copy_n(read + int64_t{t} * c.value_dim, c.value_dim, c.out + t * c.out_stride);
  }
  update_state(c, decays, d);
}

}  // namespace exode::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exode::cpu {

HWY_EXPORT(delta_chunk);

size_t delta_chunk_scratch(int32_t value_dim) {
  constexpr size_t kSquare = size_t{kGdnChunk} * kGdnChunk;
  return 2 * kSquare + 2 * kGdnChunk * static_cast<size_t>(value_dim);
}

void delta_chunk(const DeltaChunk& chunk) { HWY_DYNAMIC_DISPATCH(delta_chunk)(chunk); }

}  // namespace exode::cpu
#endif  // HWY_ONCE
