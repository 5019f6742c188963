// Sampler on CUDA, in three kernels; a row of logits is cut into chunks of 2048 ids, a block each,
// and the last block of a row to end decides what the next kernel does for it.
//
//   scan_rows    applies bias and penalties, finds the likeliest id of each chunk
//   weigh_rows   ends greedy rows. For the others, probabilities: chunk masses when nothing
//                restricts the row, which then is drawn at once; else a histogram with exact
//                masses, which says which probabilities can matter.
//   gather_rows  collects those ids; the last block sorts them, cuts and draws. Where they are too
//                many to sort, one block searches the row instead (sample_search.cuh).
//
// Masses are sums of exact terms in double, in an order that the row alone decides.
#include "base/rng.h"
#include "ops/cuda/sample_search.cuh"

namespace exode::cuda {
namespace sampler {
namespace {

// Bias and penalties of the ids of this block's chunk.
__device__ void adjust(const Args& a, const ops::SampleRow& r, float* logits, int chunk) {
  const int begin = chunk * kChunk, end = min(begin + kChunk, a.vocab);
  for (int i = threadIdx.x; i < r.bias_count; i += kThreads) {
    const ops::TokenBias b = a.bias[r.bias_first + i];  // ids are distinct
    if (b.id >= begin && b.id < end) logits[b.id] += b.bias;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < r.history_count; i += kThreads) {
    const ops::TokenCount h = a.history[r.history_first + i];
    if (h.id < begin || h.id >= end) continue;
    float l = logits[h.id];
    l = l > 0 ? l / r.repetition : l * r.repetition;
    l -= r.frequency * static_cast<float>(h.output_count);
    logits[h.id] = l - (h.output_count > 0 ? r.presence : 0.0f);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) scan_rows(Args a) {
  start_next();
  __shared__ unsigned long long shared[kWarps];
  const int chunk = blockIdx.x, row = blockIdx.y;
  wait_for_earlier();
  const ops::SampleRow r = a.rows[row];
  const RowScratch s = scratch_of(a, row);
  if (chunk == 0) {
    for (int i = threadIdx.x; i < kBins; i += kThreads) {
      s.count[i] = 0;
      s.low[i] = 0;
    }
    if (threadIdx.x == 0) *s.state = RowState{};
  }
  if (r.active == 0) return;
  if (r.bias_count > 0 || r.history_count > 0) adjust(a, r, a.logits.row(row), chunk);
  float logit[kPerThread];
  load_chunk(a, row, chunk, logit);
  unsigned long long key = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    if (own_id(chunk, i) < a.vocab) key = max(key, logit_key(logit[i], own_id(chunk, i)));
  }
  key = block_max(key, shared);
  if (threadIdx.x == 0) s.chunk_peak[chunk] = key;
}

// The likeliest id of a row and its logit. −∞ everywhere is id 0.
struct Likeliest {
  int id;
  float logit;
};

__device__ Likeliest likeliest(const Args& a, const RowScratch& s,
                               unsigned long long (&shared)[kWarps]) {
  unsigned long long key = 0;
  for (int c = threadIdx.x; c < a.chunks; c += kThreads) key = max(key, s.chunk_peak[c]);
  key = block_max(key, shared);
  if (key == 0 || logit_of(key) == -INFINITY) return {0, -INFINITY};
  return {id_of(key), logit_of(key)};
}

struct WeighShared {
  SearchShared search;
  unsigned long long keys[kWarps];
  unsigned count[kBins], low[kBins];
};

// Draws from all ids: the chunk by the chunks' masses, then the id in it.
__device__ int draw_any(const Args& a, const ops::SampleRow& r, int row, const RowScratch& s,
                        float peak, SearchShared& shared) {
  const auto mass = [&](int c) { return __ldcg(s.chunk_mass + c); };
  double total = 0;
  for (int c = threadIdx.x; c < a.chunks; c += kThreads) total += mass(c);
  total = block_total(total, shared.sums);
  double target = random_unit(r.seed, r.position) * total;
  const int chunk = max(first_above<false>(a.chunks, target, shared, mass), 0);
  double before = 0;
  for (int c = threadIdx.x; c < chunk; c += kThreads) before += mass(c);
  target -= block_total(before, shared.sums);
  const float* logits = a.logits.row(row) + chunk * kChunk;
  const int at =
      first_above<false>(min(kChunk, a.vocab - chunk * kChunk), target, shared, [&](int i) {
        return static_cast<double>(
            __uint_as_float(probability_bits(logits[i], peak, r.temperature)));
      });
  return at < 0 ? -1 : chunk * kChunk + at;
}

// From which bits on ids can matter, and whether they are few enough to sort.
__device__ void choose(const Args& a, const ops::SampleRow& r, const RowScratch& s,
                       SearchShared& shared) {
  const auto bits_of_bin = [](int bin) {
    return kLeastBits + (static_cast<unsigned>(bin) << kBinShift);
  };
  const auto count = [&](int i) { return static_cast<double>(__ldcg(s.count + kBins - 1 - i)); };
  const auto mass = [&](int i) {
    const int bin = kBins - 1 - i;
    return mass_of(bits_of_bin(bin), __ldcg(s.count + bin), __ldcg(s.low + bin));
  };
  int bin = 0;
  double target = -1;
  if (has_top_k(a, r)) {
    bin = kBins - 1 - max(first_above<true>(kBins, r.top_k, shared, count), 0);
  } else {
    double total = 0;
    for (int i = threadIdx.x; i < kBins; i += kThreads) total += mass(i);
    total = block_total(total, shared.sums);
    if (r.top_p < 1) {
      target = r.top_p * total;
      bin = kBins - 1 - max(first_above<true>(kBins, target, shared, mass), 0);
    }
    const unsigned least = __float_as_uint(r.min_p);
    if (r.min_p > 0 && least > kLeastBits) bin = max(bin, bin_of(least));
  }
  double candidates = 0;
  for (int i = threadIdx.x; i < kBins - bin; i += kThreads) candidates += count(i);
  candidates = block_total(candidates, shared.sums);
  if (threadIdx.x != 0) return;
  s.state->target = target;
  s.state->least = bits_of_bin(bin);
  s.state->stage = candidates <= kCandidates ? Stage::kGather : Stage::kSearch;
}

__global__ void __launch_bounds__(kThreads) weigh_rows(Args a) {
  start_next();
  __shared__ WeighShared shared;
  const int chunk = blockIdx.x, row = blockIdx.y;
  for (int i = threadIdx.x; i < kBins; i += kThreads) shared.count[i] = shared.low[i] = 0;
  wait_for_earlier();
  const ops::SampleRow r = a.rows[row];
  if (r.active == 0) return;
  const RowScratch s = scratch_of(a, row);
  const Likeliest best = likeliest(a, s, shared.keys);
  const bool draws = r.temperature > 0 && isfinite(best.logit) && !(r.min_p > 1);
  if (chunk == 0 && threadIdx.x == 0) {
    s.state->best = best.id;
    s.state->peak = best.logit;
    if (!draws) a.next[row] = best.id;
  }
  if (!draws) return;
  const float peak = best.logit;
  const bool restricted = has_top_k(a, r) || r.top_p < 1 || r.min_p > 0;
  float logit[kPerThread];
  load_chunk(a, row, chunk, logit);
  __syncthreads();
  double own = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const unsigned bits = probability_bits(logit[i], peak, r.temperature);
    if (bits == 0) continue;
    if (restricted) {
      atomicAdd(&shared.count[bin_of(bits)], 1u);
      atomicAdd(&shared.low[bin_of(bits)], bits & ((1u << kBinShift) - 1));
    } else {
      own += static_cast<double>(__uint_as_float(bits));
    }
  }
  __syncthreads();
  if (restricted) {
    for (int i = threadIdx.x; i < kBins; i += kThreads) {
      if (shared.count[i] == 0) continue;
      atomicAdd(s.count + i, shared.count[i]);
      if (shared.low[i] != 0) atomicAdd(s.low + i, static_cast<unsigned long long>(shared.low[i]));
    }
  } else {
    own = block_total(own, shared.search.sums);
    if (threadIdx.x == 0) __stcg(s.chunk_mass + chunk, own);
  }
  if (!is_last_block(&s.state->weighed, a.chunks)) return;
  if (restricted) return choose(a, r, s, shared.search);
  const int token = draw_any(a, r, row, s, peak, shared.search);
  if (threadIdx.x == 0) a.next[row] = token < 0 ? best.id : token;
}

// Sorts 2^n keys in shared memory, the largest first.
__device__ void sort_down(unsigned long long* keys, int count) {
  for (int size = 2; size <= count; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < count / 2; i += kThreads) {
        const int low = 2 * i - (i & (step - 1)), high = low + step;
        const bool down = (low & size) == 0;
        const unsigned long long x = keys[low], y = keys[high];
        if ((x < y) == down) {
          keys[low] = y;
          keys[high] = x;
        }
      }
    }
  }
  __syncthreads();
}

__device__ inline int power_above(int count) {
  int power = 2;
  while (power < count) power *= 2;
  return power;
}

__device__ inline double candidate_mass(unsigned long long key) {
  return static_cast<double>(__uint_as_float(static_cast<unsigned>(key >> 32)));
}

// How many of the sorted candidates the row keeps.
__device__ int kept_count(const Args& a, const ops::SampleRow& r, const unsigned long long* keys,
                          int count, double target, SearchShared& shared) {
  if (has_top_k(a, r)) count = min(count, r.top_k);
  const auto mass = [&](int i) { return candidate_mass(keys[i]); };
  if (r.top_p < 1) {
    if (target < 0) {
      double own = 0;
      for (int i = threadIdx.x; i < count; i += kThreads) own += mass(i);
      target = r.top_p * block_total(own, shared.sums);
    }
    count = min(count, first_above<true>(count, target, shared, mass) + 1);
  }
  if (r.min_p > 0) {
    const int unlikely = first_above<false>(count, 0.5, shared, [&](int i) {
      return mass(i) < static_cast<double>(r.min_p) ? 1.0 : 0.0;
    });
    if (unlikely >= 0) count = min(count, unlikely);
  }
  return max(count, 1);
}

// By the last block of a row: cuts the candidates and draws, in id order.
__device__ int draw_candidate(const Args& a, const ops::SampleRow& r, const RowScratch& s,
                              unsigned long long* keys, SearchShared& shared) {
  const int count = min(__ldcg(&s.state->candidates), kCandidates);
  const int places = power_above(count);
  for (int i = threadIdx.x; i < places; i += kThreads) {
    keys[i] = i < count ? __ldcg(s.candidates + i) : 0;
  }
  sort_down(keys, places);
  const int kept = kept_count(a, r, keys, count, s.state->target, shared);
  // ~id moves to the front: the largest first is the lowest id first.
  const int kept_places = power_above(kept);
  for (int i = threadIdx.x; i < kept_places; i += kThreads) {
    keys[i] = i < kept ? keys[i] << 32 | keys[i] >> 32 : 0;
  }
  sort_down(keys, kept_places);
  const auto mass = [&](int i) {
    return static_cast<double>(__uint_as_float(static_cast<unsigned>(keys[i])));
  };
  double total = 0;
  for (int i = threadIdx.x; i < kept; i += kThreads) total += mass(i);
  total = block_total(total, shared.sums);
  const double target = random_unit(r.seed, r.position) * total;
  const int at = first_above<false>(kept, target, shared, mass);
  return at < 0 ? s.state->best : id_of(keys[at] >> 32);
}

__device__ void gather_chunk(const Args& a, const ops::SampleRow& r, int row, int chunk,
                             const RowScratch& s) {
  const float peak = s.state->peak;
  const unsigned least = s.state->least;
  const float most = logit_of(__ldcg(s.chunk_peak + chunk));
  if (probability_bits(most, peak, r.temperature) < least) return;
  float logit[kPerThread];
  load_chunk(a, row, chunk, logit);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const unsigned bits = probability_bits(logit[i], peak, r.temperature);
    if (bits < least) continue;
    const int at = atomicAdd(&s.state->candidates, 1);
    const unsigned id = ~static_cast<unsigned>(own_id(chunk, i));
    if (at < kCandidates)
      __stcg(s.candidates + at, static_cast<unsigned long long>(bits) << 32 | id);
  }
}

union GatherShared {
  unsigned long long keys[kCandidates];
  WideShared wide;
};

__global__ void __launch_bounds__(kThreads) gather_rows(Args a) {
  start_next();
  __shared__ GatherShared shared;
  __shared__ SearchShared search;
  const int chunk = blockIdx.x, row = blockIdx.y;
  wait_for_earlier();
  const RowScratch s = scratch_of(a, row);
  const Stage stage = s.state->stage;
  if (stage == Stage::kDone || (stage == Stage::kSearch && chunk > 0)) return;
  const ops::SampleRow r = a.rows[row];
  int token = 0;
  if (stage == Stage::kSearch) {
    const Wide wide{a, s, r, row, s.state->peak, shared.wide};
    token = wide.sample(s.state->target, random_unit(r.seed, r.position));
    if (token < 0) token = s.state->best;
  } else {
    gather_chunk(a, r, row, chunk, s);
    if (!is_last_block(&s.state->gathered, a.chunks)) return;
    token = draw_candidate(a, r, s, shared.keys, search);
  }
  if (threadIdx.x == 0) a.next[row] = token;
}

int chunks_of(const ops::Sample& op) { return (op.vocab_limit + kChunk - 1) / kChunk; }

}  // namespace
}  // namespace sampler

size_t scratch_bytes(const DeviceCaps&, const ops::Sample& op) {
  return static_cast<size_t>(op.logits.rows()) *
         static_cast<size_t>(sampler::row_scratch_bytes(sampler::chunks_of(op)));
}

void launch(Stream& stream, const ops::Sample& op, Scratch scratch) {
  const int rows = op.logits.rows();
  sampler::Args a{};
  a.logits = rows_of(op.logits);
  a.rows = reinterpret_cast<const ops::SampleRow*>(op.rows.data);
  a.history = reinterpret_cast<const ops::TokenCount*>(op.history.data);
  a.bias = reinterpret_cast<const ops::TokenBias*>(op.bias.data);
  a.vocab = op.vocab_limit;
  a.chunks = sampler::chunks_of(op);
  a.vectors = a.logits.stride % 4 == 0 && reinterpret_cast<uintptr_t>(a.logits.data) % 16 == 0;
  a.scratch = scratch.data();
  a.scratch_stride = sampler::row_scratch_bytes(a.chunks);
  a.next = op.next_token.row<int32_t>(0);
  const dim3 grid(static_cast<unsigned>(a.chunks), static_cast<unsigned>(rows));
  launch_chained(native(stream), sampler::scan_rows, grid, sampler::kThreads, 0, a);
  launch_chained(native(stream), sampler::weigh_rows, grid, sampler::kThreads, 0, a);
  launch_chained(native(stream), sampler::gather_rows, grid, sampler::kThreads, 0, a);
}

}  // namespace exode::cuda
