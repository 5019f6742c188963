// What the sampler's kernels share: a row's state in scratch, probabilities and their bins, and
// searches by a whole block.
#pragma once

#include <climits>

#include "ops/cuda/launch.cuh"

namespace exode::cuda::sampler {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPerThread = 8;
constexpr int kChunk = kThreads * kPerThread;  // ids of one block
constexpr int kCandidates = 4096;              // sorted by one block

// Probabilities are relative to the likeliest id, which has 1. A bin holds those with the same
// exponent and the same four leading bits of the mantissa. Below 2^-40 (a part in a trillion of
// the likeliest, together less than a draw can tell) an id counts as impossible.
constexpr int kBinShift = 19;
constexpr unsigned kLeastBits = 0x2b800000u, kOneBits = 0x3f800000u;
constexpr int kBins = static_cast<int>((kOneBits - kLeastBits) >> kBinShift) + 1;

enum class Stage : int { kDone, kGather, kSearch };  // what is left to do for a row

struct RowState {
  Stage stage;
  int best;               // lowest id with the largest logit
  float peak;             // its logit
  unsigned least;         // candidates have at least these bits of probability
  int candidates;         // gathered so far
  int weighed, gathered;  // blocks that have arrived at the end of the kernel
  double target;          // mass that top-p keeps; < 0: not known before the top k are
};

// Scratch of one row.
struct RowScratch {
  RowState* state;
  unsigned long long* chunk_peak;  // [chunks] logit_key
  double* chunk_mass;              // [chunks]
  unsigned long long* low;         // [kBins] sums of the bits below the bin's
  unsigned* count;                 // [kBins]
  unsigned long long* candidates;  // [kCandidates]: bits of p, then ~id
};

struct Args {
  Rows logits;
  const ops::SampleRow* rows;
  const ops::TokenCount* history;
  const ops::TokenBias* bias;
  int vocab, chunks;
  bool vectors;  // rows are 16-byte aligned
  std::byte* scratch;
  int64_t scratch_stride;  // bytes per row
  int32_t* next;
};

__host__ __device__ inline int64_t row_scratch_bytes(int chunks) {
  const int64_t bytes = 64 + chunks * int64_t{16} + kBins * int64_t{12} + kCandidates * int64_t{8};
  return (bytes + 63) / 64 * 64;
}

__device__ inline RowScratch scratch_of(const Args& a, int row) {
  std::byte* at = a.scratch + row * a.scratch_stride;
  RowScratch s;
  s.state = reinterpret_cast<RowState*>(at);
  s.chunk_peak = reinterpret_cast<unsigned long long*>(at + 64);
  s.chunk_mass = reinterpret_cast<double*>(s.chunk_peak + a.chunks);
  s.low = reinterpret_cast<unsigned long long*>(s.chunk_mass + a.chunks);
  s.candidates = s.low + kBins;
  s.count = reinterpret_cast<unsigned*>(s.candidates + kCandidates);
  return s;
}

// Orders by logit, then by lower id; NaN is below everything. 0 is no id at all.
__device__ inline unsigned long long logit_key(float logit, int id) {
  const unsigned bits = __float_as_uint(logit);
  const unsigned ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return isnan(logit) ? 0
                      : static_cast<unsigned long long>(ordered) << 32 | ~static_cast<unsigned>(id);
}
__device__ inline float logit_of(unsigned long long key) {
  const auto ordered = static_cast<unsigned>(key >> 32);
  return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}
__device__ inline int id_of(unsigned long long key) {
  return static_cast<int>(~static_cast<unsigned>(key));
}

// Bits of the probability, 0 when impossible.
__device__ inline unsigned probability_bits(float logit, float peak, float temperature) {
  const float p = expf((logit - peak) / temperature);
  const unsigned bits = __float_as_uint(p);
  return p > 0 && bits >= kLeastBits ? bits : 0;  // NaN is not above 0
}
__device__ inline int bin_of(unsigned bits) {
  return static_cast<int>((bits - kLeastBits) >> kBinShift);
}
// Mass of `count` probabilities with the same leading bits whose other bits add up to `low`: exact.
__device__ inline double mass_of(unsigned leading, unsigned long long count,
                                 unsigned long long low) {
  const double unit = static_cast<double>(__uint_as_float(leading & 0x7f800000u)) * 0x1p-23;
  return static_cast<double>(count) * static_cast<double>(__uint_as_float(leading)) +
         static_cast<double>(low) * unit;
}

__device__ inline unsigned long long block_max(unsigned long long key,
                                               unsigned long long (&shared)[kWarps]) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    key = max(key, __shfl_xor_sync(kAll, key, offset));
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = key;
  __syncthreads();
  key = 0;
  for (int w = 0; w < kWarps; ++w) key = max(key, shared[w]);
  return key;
}

__device__ inline double block_total(double x, double (&shared)[kWarps]) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAll, x, offset);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = 0;
  for (int w = 0; w < kWarps; ++w) x += shared[w];
  return x;
}

struct SearchShared {
  double sums[kWarps];
  int first, last;
};

// The first index at which the running sum of value(0), value(1), … is above the target (with
// INCLUSIVE: at least the target). Else the last index with a value above 0, else −1. Every thread
// gets the result; a thread adds up a contiguous range.
template <bool INCLUSIVE, class Value>
__device__ int first_above(int count, double target, SearchShared& shared, const Value& value) {
  const auto reached = [&](double sum) { return INCLUSIVE ? sum >= target : sum > target; };
  const int each = (count + kThreads - 1) / kThreads, lane = threadIdx.x % kWarp;
  const int begin = min(static_cast<int>(threadIdx.x) * each, count);
  const int end = min(begin + each, count);
  double own = 0;
  int last = -1;
  for (int i = begin; i < end; ++i) {
    const double v = value(i);
    own += v;
    if (v > 0) last = i;
  }
  double through = own;
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const double other = __shfl_up_sync(kAll, through, offset);
    if (lane >= offset) through += other;
  }
  __syncthreads();
  if (lane == kWarp - 1) shared.sums[threadIdx.x / kWarp] = through;
  if (threadIdx.x == 0) {
    shared.first = INT_MAX;
    shared.last = -1;
  }
  __syncthreads();
  double before = 0;
  for (int w = 0; w < static_cast<int>(threadIdx.x) / kWarp; ++w) before += shared.sums[w];
  double until = before + through;
  before += __shfl_up_sync(kAll, through, 1) * (lane > 0 ? 1.0 : 0.0);
  if (last >= 0) {
    atomicMax(&shared.last, last);
    if (reached(until)) {
      int at = begin;
      double sum = before;
      for (; at < last; ++at) {
        sum += value(at);
        if (reached(sum)) break;
      }
      atomicMin(&shared.first, at);
    }
  }
  __syncthreads();
  return shared.first != INT_MAX ? shared.first : shared.last;
}

// True in the block of a row that is the last to arrive; what the others wrote is visible to it.
__device__ inline bool is_last_block(int* arrived, int blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1) == blocks - 1;
  }
  __syncthreads();
  __threadfence();
  return last;
}

// This thread's logits of the chunk: id(i) = first + i / 4 · 4 kThreads + i % 4, −∞ past the end.
__device__ inline int own_id(int chunk, int i) {
  return chunk * kChunk + i / 4 * 4 * kThreads + static_cast<int>(threadIdx.x) * 4 + i % 4;
}
__device__ inline void load_chunk(const Args& a, int row, int chunk, float (&logit)[kPerThread]) {
  const float* from = a.logits.row(row);
#pragma unroll
  for (int i = 0; i < kPerThread; i += 4) {
    const int id = own_id(chunk, i);
    if (a.vectors && id + 4 <= a.vocab) {
      const float4 v = *reinterpret_cast<const float4*>(from + id);
      logit[i] = v.x;
      logit[i + 1] = v.y;
      logit[i + 2] = v.z;
      logit[i + 3] = v.w;
      continue;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) logit[i + k] = id + k < a.vocab ? from[id + k] : -INFINITY;
  }
}

// Restrictions of a row that restrict.
__device__ inline bool has_top_k(const Args& a, const ops::SampleRow& r) {
  return r.top_k > 0 && r.top_k < a.vocab;
}

}  // namespace exode::cuda::sampler
