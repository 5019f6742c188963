// Sampler on CUDA: one block per row. Restrictions are thresholds found by bisecting the bits of
// the probabilities (31 passes at most), so the vocabulary is never sorted.
#include <climits>

#include "base/rng.h"
#include "ops/cuda/common.cuh"

namespace exode::cuda {
namespace {

constexpr int kThreads = 1024;

struct Row {
  float* logits;
  float* p;  // probabilities times a constant
  int vocab;
};

// Kept: p > threshold, or p == threshold and id ≤ last_tie.
struct Kept {
  float threshold = 0;
  int last_tie = INT_MAX;
  __device__ bool operator()(float p, int id) const {
    return p > threshold || (p == threshold && id <= last_tie);
  }
};

__device__ void adjust(const ops::SampleRow& r, float* logits, const ops::TokenCount* history,
                       const ops::TokenBias* bias) {
  for (int i = threadIdx.x; i < r.bias_count; i += kThreads) {
    const ops::TokenBias b = bias[r.bias_first + i];  // ids are distinct
    logits[b.id] += b.bias;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < r.history_count; i += kThreads) {
    const ops::TokenCount h = history[r.history_first + i];
    float l = logits[h.id];
    l = l > 0 ? l / r.repetition : l * r.repetition;
    l -= r.frequency * static_cast<float>(h.output_count);
    logits[h.id] = l - (h.output_count > 0 ? r.presence : 0.0f);
  }
  __syncthreads();
}

// NaN never wins; ties go to the lower id; all −inf gives 0.
__device__ int block_arg_max(const float* logits, int vocab, float* peak, float* values, int* ids) {
  float best = -INFINITY;
  int id = INT_MAX;
  for (int i = threadIdx.x; i < vocab; i += kThreads) {
    if (logits[i] > best) {
      best = logits[i];
      id = i;
    }
  }
  values[threadIdx.x] = best;
  ids[threadIdx.x] = id;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      const float other = values[threadIdx.x + half];
      const int other_id = ids[threadIdx.x + half];
      if (other > values[threadIdx.x] ||
          (other == values[threadIdx.x] && other_id < ids[threadIdx.x])) {
        values[threadIdx.x] = other;
        ids[threadIdx.x] = other_id;
      }
    }
    __syncthreads();
  }
  *peak = values[0];
  const int result = ids[0] == INT_MAX ? 0 : ids[0];
  __syncthreads();
  return result;
}

// Sum of value(p, id) over the row, the same in every thread.
template <class Value>
__device__ float row_sum(const Row& row, float* shared, const Value& value) {
  float sum = 0;
  for (int i = threadIdx.x; i < row.vocab; i += kThreads) sum += value(row.p[i], i);
  return block_sum(sum, shared);
}

// The largest threshold t with weigh({p ≥ t}) ≥ target: probabilities are ordered like their bits.
template <class Value>
__device__ float bisect(const Row& row, float* shared, float target, const Value& value) {
  unsigned low = 0, high = __float_as_uint(1.0f);  // p ≤ 1
  while (low < high) {
    const unsigned middle = low + (high - low + 1) / 2;
    const float t = __uint_as_float(middle);
    const float weight =
        row_sum(row, shared, [&](float p, int) { return p >= t ? value(p) : 0.0f; });
    if (weight >= target) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return __uint_as_float(low);
}

// Ties at the threshold are kept from the lowest id until their weight is enough.
template <class Value>
__device__ int last_tie(const Row& row, float* shared, float threshold, float target,
                        const Value& value) {
  const float above =
      row_sum(row, shared, [&](float p, int) { return p > threshold ? value(p) : 0.0f; });
  int low = 0, high = row.vocab - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    const float ties = row_sum(row, shared, [&](float p, int id) {
      return p == threshold && id <= middle ? value(p) : 0.0f;
    });
    if (above + ties >= target) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

__device__ Kept restrict(const Row& row, const ops::SampleRow& r, float* shared) {
  Kept kept;
  const auto one = [](float) { return 1.0f; };
  const auto mass = [](float p) { return p; };
  if (r.top_k > 0 && r.top_k < row.vocab) {
    const auto k = static_cast<float>(r.top_k);
    kept.threshold = bisect(row, shared, k, one);
    kept.last_tie = last_tie(row, shared, kept.threshold, k, one);
  }
  if (r.top_p < 1) {
    // Outside the top k nothing counts: clear it, so that the masses below see the kept ids only.
    for (int i = threadIdx.x; i < row.vocab; i += kThreads) {
      if (!kept(row.p[i], i)) row.p[i] = 0;
    }
    __syncthreads();
    const float total = row_sum(row, shared, [](float p, int) { return p; });
    const float target = r.top_p * total;
    kept.threshold = bisect(row, shared, target, mass);
    kept.last_tie = last_tie(row, shared, kept.threshold, target, mass);
  }
  if (r.min_p > kept.threshold) {  // p of the likeliest id is 1
    kept.threshold = r.min_p;
    kept.last_tie = INT_MAX;
  }
  return kept;
}

// Inverse CDF over the kept ids in id order: a thread sums a contiguous range, one finds the range.
__device__ int draw(const Row& row, const Kept& kept, float unit, int fallback, float* sums,
                    int* result) {
  const int per_thread = (row.vocab + kThreads - 1) / kThreads;
  const int begin = threadIdx.x * per_thread, end = min(begin + per_thread, row.vocab);
  float own = 0;
  for (int i = begin; i < end; ++i) own += kept(row.p[i], i) ? row.p[i] : 0.0f;
  sums[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int t = 0; t < kThreads; ++t) total += sums[t];
    float mass = 0;
    const float target = unit * total;
    *result = fallback;
    int t = 0;
    while (t < kThreads - 1 && mass + sums[t] <= target) mass += sums[t++];
    const int first = t * per_thread;
    for (int i = first; i < min(first + per_thread, row.vocab); ++i) {
      if (!kept(row.p[i], i) || row.p[i] == 0) continue;
      mass += row.p[i];
      *result = i;
      if (mass > target) break;
    }
  }
  __syncthreads();
  return *result;
}

__global__ void sample(Rows logits, float* probabilities, int stride, const ops::SampleRow* rows,
                       const ops::TokenCount* history, const ops::TokenBias* bias, int vocab,
                       int32_t* next) {
  __shared__ float values[kThreads];
  __shared__ int ids[kThreads];
  const ops::SampleRow r = rows[blockIdx.x];
  if (r.active == 0) return;
  const Row row{logits.row(blockIdx.x), probabilities + int64_t{blockIdx.x} * stride, vocab};
  adjust(r, row.logits, history, bias);
  float peak;
  const int best = block_arg_max(row.logits, vocab, &peak, values, ids);
  int token = best;
  if (r.temperature > 0 && isfinite(peak)) {
    for (int i = threadIdx.x; i < vocab; i += kThreads) {
      const float p = expf((row.logits[i] - peak) / r.temperature);
      row.p[i] = isnan(p) ? 0.0f : p;
    }
    __syncthreads();
    const Kept kept = restrict(row, r, values);
    token = draw(row, kept, random_unit(r.seed, r.position), best, values, ids);
  }
  if (threadIdx.x == 0) next[blockIdx.x] = token;
}

}  // namespace

size_t scratch_bytes(const DeviceCaps&, const ops::Sample& op) {
  return static_cast<size_t>(op.logits.shape.elements()) * sizeof(float);
}

void launch(Stream& stream, const ops::Sample& op, Scratch scratch) {
  sample<<<static_cast<unsigned>(op.logits.rows()), kThreads, 0, native(stream)>>>(
      rows_of(op.logits), reinterpret_cast<float*>(scratch.data()), op.logits.cols(),
      reinterpret_cast<const ops::SampleRow*>(op.rows.data),
      reinterpret_cast<const ops::TokenCount*>(op.history.data),
      reinterpret_cast<const ops::TokenBias*>(op.bias.data), op.vocab_limit,
      op.next_token.row<int32_t>(0));
  launched();
}

}  // namespace exode::cuda
