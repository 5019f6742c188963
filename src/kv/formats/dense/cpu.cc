// Dense KV on the CPU. A task is a few queries (rows × query heads) of one sequence and KV head; it
// walks the blocks of the sequence once with an online softmax per query:
//
//   block    K [64, dim] → scores [queries, 64] → p = exp(score − peak) → out += p V [64, dim]
//   tile     kTile queries × 4 keys in registers: a key is loaded and decoded once for the tile
//
// Each query keeps its own order of summation, whatever shares its tile or task, so a row's bits
// depend on nothing but its own keys. Must move: the K and V of each sequence, once per task.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/half.h"
#include "kv/formats/dense/layout.h"

#ifndef EXODE_KV_DENSE_CPU_TASK
#define EXODE_KV_DENSE_CPU_TASK
namespace exode::kv_dense {

inline constexpr int32_t kTaskQueries = 16;  // a block of K and V stays in L2 for that many

// Queries [first, first + count) of the run of rows from `run_first` that belong to one sequence,
// numbered row by row, the heads of the group together.
struct AttendTask {
  const kv::Attend* op = nullptr;
  int32_t sequence = 0, kv_head = 0, group = 1;
  int32_t run_first = 0;
  int32_t first = 0, count = 0;
  int32_t row(int32_t i) const { return run_first + (first + i) / group; }
  int32_t head(int32_t i) const { return kv_head * group + (first + i) % group; }
};

}  // namespace exode::kv_dense
#endif  // EXODE_KV_DENSE_CPU_TASK

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

constexpr int32_t kTile = kLanes == 16 ? 4 : 2;  // accumulators fill the registers
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Query {
  const float* q;
  float* out;           // un-normalised until the end
  int32_t first, last;  // positions it sees
  int32_t begin, end;   // of those, the ones in the current block
  float peak, total;    // running maximum, sum of exp(score − peak)
  float correction;     // exp(old peak − new peak)
};

// scores[m][t] = q_m · k[t] for t in [begin, end) and up to three more on either side, by fours.
template <class Format, int kCount>
HWY_INLINE void score_tile(const Query* queries, const typename Format::Code* k, int32_t dim,
                           float (*scores)[kKvBlock]) {
  const int32_t end = queries[0].end;
  for (int32_t t = queries[0].begin / 4 * 4; t < end; t += 4) {
    const typename Format::Code* keys[4];
    for (int32_t j = 0; j < 4; ++j) keys[j] = k + int64_t{std::min(t + j, end - 1)} * dim;
    V sum[kCount][4];
    _Pragma("GCC unroll 4") for (auto& row : sum) {
      _Pragma("GCC unroll 4") for (V& cell : row) cell = hn::Zero(D());
    }
    for (int32_t i = 0; i < dim; i += kLanes) {
      V key[4];
      _Pragma("GCC unroll 4") for (int j = 0; j < 4; ++j) key[j] = Format::decode(keys[j] + i);
      _Pragma("GCC unroll 4") for (int m = 0; m < kCount; ++m) {
        const V q = hn::LoadU(D(), queries[m].q + i);
        _Pragma("GCC unroll 4") for (int j = 0; j < 4; ++j) {
          sum[m][j] = hn::MulAdd(q, key[j], sum[m][j]);
        }
      }
    }
    _Pragma("GCC unroll 4") for (int m = 0; m < kCount; ++m) {
      simd::store_sums(sum[m][0], sum[m][1], sum[m][2], sum[m][3], scores[m] + t);
    }
  }
}

// out_m = out_m · correction_m + Σ p[m][t] v[t]
template <class Format, int kCount>
HWY_INLINE void add_values(const Query* queries, const typename Format::Code* v, int32_t dim,
                           const float (*p)[kKvBlock]) {
  simd::WeightedRows<kCount> sum{};
  for (int m = 0; m < kCount; ++m) {
    sum.weights[m] = p[m];
    sum.scale[m] = queries[m].correction;
    sum.out[m] = queries[m].out;
  }
  simd::add_rows<Format>(sum, v, dim, queries[0].begin, queries[0].end);
}

// Turns the scores of a block into p = exp(score − peak) and moves the query's running softmax on.
HWY_INLINE void softmax_block(Query& query, float* scores, float scale, float soft_cap) {
  const int32_t first = query.begin / kLanes * kLanes;
  const int32_t last = (query.end + kLanes - 1) / kLanes * kLanes;
  for (int32_t t = query.begin; t < query.end; ++t) {
    scores[t] *= scale;
    if (soft_cap > 0) scores[t] = soft_cap * std::tanh(scores[t] / soft_cap);
  }
  std::fill(scores + first, scores + query.begin, -kInfinity);
  std::fill(scores + query.end, scores + last, -kInfinity);
  V most = hn::Set(D(), query.peak);
  for (int32_t t = first; t < last; t += kLanes) most = hn::Max(most, hn::LoadU(D(), scores + t));
  const float peak = hn::GetLane(hn::MaxOfLanes(D(), most));
  const V vpeak = hn::Set(D(), peak);
  V sum = hn::Zero(D());
  for (int32_t t = first; t < last; t += kLanes) {
    const V e = hn::Exp(D(), hn::Sub(hn::LoadU(D(), scores + t), vpeak));
    hn::StoreU(e, D(), scores + t);
    sum = hn::Add(sum, e);
  }
  query.correction = query.total > 0 ? std::exp(query.peak - peak) : 0.0f;
  query.total = query.total * query.correction + hn::GetLane(hn::SumOfLanes(D(), sum));
  query.peak = peak;
}

// Queries of the tile that see the same tokens of the block share loads; the others go alone.
template <class Format, int kCount>
HWY_INLINE void attend_tile(const kv::Attend& op, Query* queries, const typename Format::Code* k,
                            const typename Format::Code* v) {
  HWY_ALIGN float scores[kCount][kKvBlock];
  score_tile<Format, kCount>(queries, k, op.cache.head_dim, scores);
  for (int m = 0; m < kCount; ++m) softmax_block(queries[m], scores[m], op.scale, op.soft_cap);
  add_values<Format, kCount>(queries, v, op.cache.head_dim, scores);
}

// Length of the run of queries, from the first, that see the same tokens of the block.
int32_t run_length(const Query* queries, int32_t count) {
  int32_t n = 1;
  while (n < count && queries[n].begin == queries[0].begin && queries[n].end == queries[0].end) ++n;
  return n;
}

template <class Format>
void attend_block(const kv::Attend& op, Query* queries, int32_t count,
                  const typename Format::Code* k, const typename Format::Code* v) {
  for (int32_t i = 0; i < count;) {
    const int32_t same = std::min(run_length(queries + i, count - i), kTile);
    if (queries[i].begin >= queries[i].end) {
      ++i;
    } else if (same >= 4) {
      attend_tile<Format, 4>(op, queries + i, k, v);
      i += 4;
    } else if (same >= 2) {
      attend_tile<Format, 2>(op, queries + i, k, v);
      i += 2;
    } else {
      attend_tile<Format, 1>(op, queries + i, k, v);
      ++i;
    }
  }
}

// Divides by the total and applies the gate, if there is one.
HWY_INLINE void finish_query(const Query& query, const float* gate, int32_t dim) {
  const V factor = hn::Set(D(), 1.0f / query.total);
  for (int32_t c = 0; c < dim; c += kLanes) {
    V value = hn::Mul(hn::LoadU(D(), query.out + c), factor);
    if (gate != nullptr) value = hn::Mul(value, simd::sigmoid(hn::LoadU(D(), gate + c)));
    hn::StoreU(value, D(), query.out + c);
  }
}

template <class Format>
void attend_queries(const AttendTask& task) {
  const kv::Attend& op = *task.op;
  const int32_t dim = op.cache.head_dim;
  Query queries[kTaskQueries];
  int32_t first = std::numeric_limits<int32_t>::max(), last = -1;
  for (int32_t i = 0; i < task.count; ++i) {
    const int32_t row = task.row(i), position = op.positions.row<int32_t>(0)[row];
    const int64_t column = int64_t{task.head(i)} * dim;
    queries[i] = {.q = op.q.row<float>(row) + column,
                  .out = op.out.row<float>(row) + column,
                  .first = op.window > 0 ? std::max(0, position - op.window + 1) : 0,
                  .last = position,
                  .begin = 0,
                  .end = 0,
                  .peak = -kInfinity,
                  .total = 0,
                  .correction = 0};
    std::fill_n(queries[i].out, dim, 0.0f);
    first = std::min(first, queries[i].first);
    last = std::max(last, position);
  }
  for (int32_t b = first / kKvBlock; b <= last / kKvBlock; ++b) {
    for (int32_t i = 0; i < task.count; ++i) {
      queries[i].begin = std::max(queries[i].first - b * kKvBlock, 0);
      queries[i].end = std::min(queries[i].last + 1 - b * kKvBlock, kKvBlock);
    }
    const auto* block = block_data<typename Format::Code>(op.cache, task.sequence, b);
    attend_block<Format>(op, queries, task.count, block + k_offset(op.cache, task.kv_head, 0),
                         block + v_offset(op.cache, task.kv_head, 0));
  }
  for (int32_t i = 0; i < task.count; ++i) {
    const float* gate =
        op.gate.empty() ? nullptr : op.gate.row<float>(task.row(i)) + int64_t{task.head(i)} * dim;
    finish_query(queries[i], gate, dim);
  }
}

void attend(const AttendTask& task, DType dtype) {
  if (dtype == DType::kF32) return attend_queries<simd::F32>(task);
  if (dtype == DType::kBF16) return attend_queries<simd::Bf16>(task);
  attend_queries<simd::F16>(task);
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

// Calls body for every task of the op. Neighbours have neighbouring lengths, so dealing the tasks
// out in turn balances a causal triangle.
template <class Body>
void for_each_task(const kv::Attend& op, int32_t per_task, const Body& body) {
  const int32_t rows = op.q.rows(), group = op.q.cols() / (op.cache.heads * op.cache.head_dim);
  const auto* sequences = op.seq_of_row.row<int32_t>(0);
  for (int32_t kv_head = 0; kv_head < op.cache.heads; ++kv_head) {
    for (int32_t first = 0, end = 0; first < rows; first = end) {
      while (end < rows && sequences[end] == sequences[first]) ++end;
      if (sequences[first] < 0) continue;
      const int32_t queries = (end - first) * group;
      for (int32_t i = 0; i < queries; i += per_task) {
        body(AttendTask{.op = &op,
                        .sequence = sequences[first],
                        .kv_head = kv_head,
                        .group = group,
                        .run_first = first,
                        .first = i,
                        .count = std::min(per_task, queries - i)});
      }
    }
  }
}

}  // namespace

void cpu_append(Stream& stream, const kv::KvAppend& op, DType dtype) {
  EXODE_CHECK(op.k.dtype == DType::kF32 && op.v.dtype == DType::kF32,
              "cpu kernels take f32 activations");
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
  EXODE_CHECK(op.q.dtype == DType::kF32 && op.out.dtype == DType::kF32,
              "cpu kernels take f32 activations");
  EXODE_CHECK(op.cache.head_dim % 16 == 0,
              "attention on the cpu needs head_dim to be a multiple of 16");
  const int32_t threads = stream.pool().size(), heads = op.q.cols() / op.cache.head_dim;
  // One row must still occupy every thread, so a task takes fewer queries when there are few.
  const int32_t per_task = std::clamp(op.q.rows() * heads / threads, 1, kTaskQueries);
  stream.pool().run(threads, [&](int32_t part, int32_t parts) {
    int32_t index = 0;
    for_each_task(op, per_task, [&](const AttendTask& task) {
      if (index++ % parts == part) HWY_DYNAMIC_DISPATCH(attend)(task, dtype);
    });
  });
}

}  // namespace exode::kv_dense
#endif  // HWY_ONCE
