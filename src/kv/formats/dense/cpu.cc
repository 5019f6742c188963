// Dense KV on the CPU. A task is one query head of one row; it walks the blocks of its sequence
// with an online softmax, so a row's result depends on nothing but its own keys. Query heads of a
// group are neighbours in the task order and find the block in the cache.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/half.h"
#include "kv/formats/dense/layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kv/formats/dense/cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace exode::kv_dense::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = exode::cpu::HWY_NAMESPACE;
using simd::D;
using simd::kLanes;
using simd::V;

// scores[t] = q · k[t], four keys at a time so that q is loaded once for them.
template <class Format>
HWY_INLINE void score_block(const float* q, const typename Format::Code* k, int32_t dim,
                            int32_t count, float* scores) {
  int32_t t = 0;
  for (; t + 4 <= count; t += 4) {
    V sum[4] = {hn::Zero(D()), hn::Zero(D()), hn::Zero(D()), hn::Zero(D())};
    for (int32_t i = 0; i < dim; i += kLanes) {
      const V query = hn::LoadU(D(), q + i);
      for (int32_t j = 0; j < 4; ++j) {
        sum[j] = hn::MulAdd(query, Format::decode(k + int64_t{t + j} * dim + i), sum[j]);
      }
    }
    for (int32_t j = 0; j < 4; ++j) scores[t + j] = hn::GetLane(hn::SumOfLanes(D(), sum[j]));
  }
  for (; t < count; ++t) {
    V sum = hn::Zero(D());
    for (int32_t i = 0; i < dim; i += kLanes) {
      sum = hn::MulAdd(hn::LoadU(D(), q + i), Format::decode(k + int64_t{t} * dim + i), sum);
    }
    scores[t] = hn::GetLane(hn::SumOfLanes(D(), sum));
  }
}

// out = out · correction + Σ p[t] v[t]
template <class Format>
HWY_INLINE void add_values(const float* p, const typename Format::Code* v, int32_t dim,
                           int32_t count, float correction, float* out) {
  const V factor = hn::Set(D(), correction);
  for (int32_t i = 0; i < dim; i += kLanes) {
    V sum = hn::Mul(hn::LoadU(D(), out + i), factor);
    for (int32_t t = 0; t < count; ++t) {
      sum = hn::MulAdd(hn::Set(D(), p[t]), Format::decode(v + int64_t{t} * dim + i), sum);
    }
    hn::StoreU(sum, D(), out + i);
  }
}

// p[t] = exp(p[t] − peak); returns the sum. p has room for whole vectors.
HWY_INLINE float exponentiate(float* p, int32_t count, float peak) {
  const V vpeak = hn::Set(D(), peak);
  for (int32_t t = count; t < (count + kLanes - 1) / kLanes * kLanes; ++t) {
    p[t] = -std::numeric_limits<float>::infinity();
  }
  V sum = hn::Zero(D());
  for (int32_t t = 0; t < count; t += kLanes) {
    const V e = hn::Exp(D(), hn::Sub(hn::LoadU(D(), p + t), vpeak));
    hn::StoreU(e, D(), p + t);
    sum = hn::Add(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(D(), sum));
}

template <class Format>
void attend_head(const kv::Attend& op, int32_t row, int32_t head) {
  using Code = typename Format::Code;
  const KvView& cache = op.cache;
  const int32_t dim = cache.head_dim;
  const int32_t kv_head = head / (op.q.cols() / (cache.heads * dim));
  const int32_t sequence = op.seq_of_row.row<int32_t>(0)[row];
  const int32_t last = op.positions.row<int32_t>(0)[row];
  const int32_t first = op.window > 0 ? std::max(0, last - op.window + 1) : 0;
  const float* q = op.q.row<float>(row) + int64_t{head} * dim;
  float* out = op.out.row<float>(row) + int64_t{head} * dim;
  std::fill(out, out + dim, 0.0f);
  float peak = -std::numeric_limits<float>::infinity(), total = 0;
  HWY_ALIGN float scores[kKvBlock];
  for (int32_t token = first; token <= last;) {
    const int32_t in_block = token % kKvBlock;
    const int32_t count = std::min(kKvBlock - in_block, last + 1 - token);
    const Code* block = block_data<Code>(cache, sequence, token / kKvBlock);
    score_block<Format>(q, block + k_offset(cache, kv_head, in_block), dim, count, scores);
    float block_peak = peak;
    for (int32_t t = 0; t < count; ++t) {
      scores[t] *= op.scale;
      if (op.soft_cap > 0) scores[t] = op.soft_cap * std::tanh(scores[t] / op.soft_cap);
      block_peak = std::max(block_peak, scores[t]);
    }
    const float correction = token == first ? 0.0f : std::exp(peak - block_peak);
    peak = block_peak;
    total = total * correction + exponentiate(scores, count, peak);
    add_values<Format>(scores, block + v_offset(cache, kv_head, in_block), dim, count, correction,
                       out);
    token += count;
  }
  const V factor = hn::Set(D(), 1.0f / total);
  for (int32_t i = 0; i < dim; i += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(D(), out + i), factor), D(), out + i);
}

void attend(const kv::Attend& op, DType dtype, int32_t row, int32_t head) {
  if (dtype == DType::kF32) return attend_head<simd::F32>(op, row, head);
  if (dtype == DType::kBF16) return attend_head<simd::Bf16>(op, row, head);
  attend_head<simd::F16>(op, row, head);
}

}  // namespace exode::kv_dense::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exode::kv_dense {
namespace {

HWY_EXPORT(attend);

void store_row(const float* in, std::byte* out, int64_t offset, int32_t count, DType dtype) {
  if (dtype == DType::kF32) {
    std::copy_n(in, count, reinterpret_cast<float*>(out) + offset);
    return;
  }
  auto* half = reinterpret_cast<uint16_t*>(out) + offset;
  for (int32_t i = 0; i < count; ++i)
    half[i] = dtype == DType::kBF16 ? float_to_bf16(in[i]) : float_to_f16(in[i]);
}

}  // namespace

void cpu_append(Stream& stream, const kv::KvAppend& op, DType dtype) {
  EXODE_CHECK(op.k.dtype == DType::kF32, "cpu kernels take f32 activations");
  const int32_t d = op.cache.head_dim;
  stream.pool().parallel_for(op.k.rows(), 16, [&](int32_t begin, int32_t end) {
    for (int32_t r = begin; r < end; ++r) {
      const int32_t sequence = op.seq_of_row.row<int32_t>(0)[r],
                    position = op.positions.row<int32_t>(0)[r];
      if (sequence < 0) continue;
      auto* block = block_data<std::byte>(op.cache, sequence, position / kKvBlock);
      for (int32_t h = 0; h < op.cache.heads; ++h) {
        const int32_t token = position % kKvBlock;
        store_row(op.k.row<float>(r) + int64_t{h} * d, block, k_offset(op.cache, h, token), d,
                  dtype);
        store_row(op.v.row<float>(r) + int64_t{h} * d, block, v_offset(op.cache, h, token), d,
                  dtype);
      }
    }
  });
}

void cpu_attend(Stream& stream, const kv::Attend& op, DType dtype) {
  EXODE_CHECK(op.q.dtype == DType::kF32, "cpu kernels take f32 activations");
  EXODE_CHECK(op.cache.head_dim % 16 == 0,
              "attention on the cpu needs head_dim to be a multiple of 16");
  const int32_t heads = op.q.cols() / op.cache.head_dim;
  stream.pool().parallel_for(op.q.rows() * heads, 1, [&](int32_t begin, int32_t end) {
    for (int32_t i = begin; i < end; ++i) {
      if (op.seq_of_row.row<int32_t>(0)[i / heads] < 0) continue;
      HWY_DYNAMIC_DISPATCH(attend)(op, dtype, i / heads, i % heads);
    }
  });
}

}  // namespace exode::kv_dense
#endif  // HWY_ONCE
