// Sampling from a set of ids too large to sort, by one block: the cut is found by radix search on
// the bits of the probabilities, so it is exact; each step reads the whole row.
#pragma once

#include "ops/cuda/sample.cuh"

namespace exode::cuda::sampler {

// Kept: probabilities above `bits`, and the first `ties` ids, in id order, that have exactly them.
struct Cut {
  unsigned bits = 0;
  long long ties = LLONG_MAX;
  double mass_above = 0;  // of the ids above `bits`
};

__device__ inline Cut stricter(const Cut& a, const Cut& b) {
  if (a.bits != b.bits) return a.bits > b.bits ? a : b;
  return a.ties < b.ties ? a : b;
}

constexpr int kMiddleBits = 10, kLowBits = kBinShift - kMiddleBits;

struct WideShared {
  SearchShared search;
  unsigned count[1 << kMiddleBits], low[1 << kMiddleBits];
};

struct Wide {
  const Args& a;
  const RowScratch& s;
  const ops::SampleRow& r;
  int row;
  float peak;
  WideShared& shared;

  __device__ unsigned bits(int id) const {
    return probability_bits(a.logits.row(row)[id], peak, r.temperature);
  }

  // Of the ids whose bits are `leading` above bit `shift + width`: counts and sums of the bits
  // below `shift`, by the `width` bits between.
  __device__ void histogram(unsigned leading, int shift, int width) const {
    for (int i = threadIdx.x; i < 1 << width; i += kThreads) shared.count[i] = shared.low[i] = 0;
    __syncthreads();
    for (int id = threadIdx.x; id < a.vocab; id += kThreads) {
      const unsigned b = bits(id);
      if (b == 0 || b >> (shift + width) != leading) continue;
      const unsigned at = b >> shift & ((1u << width) - 1);
      atomicAdd(&shared.count[at], 1u);
      atomicAdd(&shared.low[at], b & ((1u << shift) - 1));
    }
    __syncthreads();
  }

  // Where, from the top, the weight reaches the target. `by_count`: the weight of an id is 1, else
  // its probability. The weight above the place found is taken off the target.
  template <class Count, class Mass>
  __device__ int descend(int bins, bool by_count, double& target, double& mass_above,
                         const Count& count, const Mass& mass) const {
    const int from_top = first_above<true>(bins, target, shared.search, [&](int i) {
      return by_count ? count(bins - 1 - i) : mass(bins - 1 - i);
    });
    const int found = bins - 1 - max(from_top, 0);
    double weight = 0, passed = 0;
    for (int i = found + 1 + static_cast<int>(threadIdx.x); i < bins; i += kThreads) {
      weight += by_count ? count(i) : mass(i);
      passed += mass(i);
    }
    target -= block_total(weight, shared.search.sums);
    mass_above += block_total(passed, shared.search.sums);
    return found;
  }

  __device__ int descend_local(unsigned leading, int shift, int width, bool by_count,
                               double& target, double& mass_above) const {
    histogram(leading, shift, width);
    return descend(
        1 << width, by_count, target, mass_above,
        [&](int i) { return static_cast<double>(shared.count[i]); },
        [&](int i) {
          const unsigned bits = (leading << width | static_cast<unsigned>(i)) << shift;
          return mass_of(bits, shared.count[i], shared.low[i]);
        });
  }

  __device__ Cut find(bool by_count, double target) const {
    Cut cut;
    const int bin = descend(
        kBins, by_count, target, cut.mass_above,
        [&](int i) { return static_cast<double>(__ldcg(s.count + i)); },
        [&](int i) {
          const unsigned bits = kLeastBits + (static_cast<unsigned>(i) << kBinShift);
          return mass_of(bits, __ldcg(s.count + i), __ldcg(s.low + i));
        });
    const unsigned top = (kLeastBits >> kBinShift) + static_cast<unsigned>(bin);
    const int middle = descend_local(top, kLowBits, kMiddleBits, by_count, target, cut.mass_above);
    const unsigned leading = top << kMiddleBits | static_cast<unsigned>(middle);
    const int low = descend_local(leading, 0, kLowBits, by_count, target, cut.mass_above);
    cut.bits = leading << kLowBits | static_cast<unsigned>(low);
    const double each = by_count ? 1 : static_cast<double>(__uint_as_float(cut.bits));
    cut.ties = max(1ll, static_cast<long long>(ceil(target / each)));
    return cut;
  }

  // Draws among the kept ids, in id order.
  __device__ int draw(const Cut& cut, double unit) const {
    int last_tie = INT_MAX;
    if (cut.ties != LLONG_MAX) {
      last_tie = first_above<true>(a.vocab, static_cast<double>(cut.ties), shared.search,
                                   [&](int id) { return bits(id) == cut.bits ? 1.0 : 0.0; });
    }
    const auto kept = [&](int id) {
      const unsigned b = bits(id);
      const bool keep = b > cut.bits || (b == cut.bits && id <= last_tie);
      return keep ? static_cast<double>(__uint_as_float(b)) : 0.0;
    };
    double own = 0;
    for (int id = threadIdx.x; id < a.vocab; id += kThreads) own += kept(id);
    const double total = block_total(own, shared.search.sums);
    return first_above<false>(a.vocab, unit * total, shared.search, kept);
  }

  __device__ int sample(double target, double unit) const {
    Cut cut{kLeastBits};
    if (has_top_k(a, r)) cut = find(true, r.top_k);
    if (r.top_p < 1) {
      if (target < 0) {
        // Of the top k; all possible ids when they are fewer.
        target = r.top_p * (cut.mass_above + static_cast<double>(cut.ties) *
                                                 static_cast<double>(__uint_as_float(cut.bits)));
      }
      cut = stricter(cut, find(false, target));
    }
    if (r.min_p > 0) cut = stricter(cut, {max(__float_as_uint(r.min_p), kLeastBits)});
    return draw(cut, unit);
  }
};

}  // namespace exode::cuda::sampler
