// Sampler on the CPU. Every restriction becomes a cut in the order (probability descending, id
// ascending): ids up to the cut are kept. A cut is found by selection among the few ids above a
// threshold, lowered until enough count or mass lies above it; nothing is sorted, and kept ids are
// gathered in id order, as the draw wants them.
//
//   logits [vocab] → probability [vocab], by chunks of 256 with their sums and maxima → cut → draw
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "ops/cpu/cpu.h"

#ifndef EXODE_OPS_CPU_SAMPLE_TYPES
#define EXODE_OPS_CPU_SAMPLE_TYPES
namespace exode::cpu {

inline constexpr int32_t kChunk = 256;

// Scratch of one thread. Probabilities are relative to the likeliest id (which has 1) and padded
// with zeros to whole chunks.
struct SampleWork {
  float* probability;  // [chunks · kChunk]
  int32_t* ids;        // [chunks · kChunk]
  float* chunk_peak;   // [chunks]
  double* chunk_sum;   // [chunks]
  int32_t chunks;
};

struct Above {
  int64_t count = 0;
  double mass = 0;
};

}  // namespace exode::cpu
#endif  // EXODE_OPS_CPU_SAMPLE_TYPES

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/sample.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace exode::cpu::HWY_NAMESPACE {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Past the end there is −∞.
HWY_INLINE V load_logits(const float* logits, int32_t i, int32_t count) {
  if (i + kLanes <= count) return hn::LoadU(D(), logits + i);
  float lanes[kLanes];
  for (int32_t k = 0; k < kLanes; ++k) lanes[k] = i + k < count ? logits[i + k] : -kInfinity;
  return hn::LoadU(D(), lanes);
}

// NaN never wins; the lowest id wins ties; 0 when nothing is above −∞.
int32_t arg_max(const float* logits, int32_t count) {
  V best = hn::Set(D(), -kInfinity);
  for (int32_t i = 0; i < count; i += kLanes) {
    const V v = load_logits(logits, i, count);
    best = hn::IfThenElse(hn::Gt(v, best), v, best);
  }
  const float peak = hn::GetLane(hn::MaxOfLanes(D(), best));
  if (peak == -kInfinity) return 0;
  const V vpeak = hn::Set(D(), peak);
  for (int32_t i = 0;; i += kLanes) {
    const auto equal = hn::Eq(load_logits(logits, i, count), vpeak);
    if (!hn::AllFalse(D(), equal)) return i + static_cast<int32_t>(hn::FindFirstTrue(D(), equal));
  }
}

// probability = exp((logit − peak) / temperature), 0 for NaN, with the sums and maxima of chunks.
void exponentiate(const float* logits, int32_t count, float peak, float temperature,
                  const SampleWork& work) {
  const V vpeak = hn::Set(D(), peak), divisor = hn::Set(D(), temperature);
  for (int32_t c = 0; c < work.chunks; ++c) {
    V sum = hn::Zero(D()), most = hn::Zero(D());
    for (int32_t i = c * kChunk; i < (c + 1) * kChunk; i += kLanes) {
      const V x = hn::Div(hn::Sub(load_logits(logits, i, count), vpeak), divisor);
      const V p = hn::IfThenElseZero(hn::Eq(x, x), hn::Exp(D(), x));
      hn::StoreU(p, D(), work.probability + i);
      sum = hn::Add(sum, p);
      most = hn::Max(most, p);
    }
    work.chunk_sum[c] = static_cast<double>(hn::GetLane(hn::SumOfLanes(D(), sum)));
    work.chunk_peak[c] = hn::GetLane(hn::MaxOfLanes(D(), most));
  }
}

// Count and mass of the ids with probability ≥ threshold.
Above above(const SampleWork& work, float threshold) {
  const V limit = hn::Set(D(), threshold);
  Above result;
  for (int32_t c = 0; c < work.chunks; ++c) {
    if (work.chunk_peak[c] < threshold) continue;
    V sum = hn::Zero(D());
    for (int32_t i = c * kChunk; i < (c + 1) * kChunk; i += kLanes) {
      const V p = hn::LoadU(D(), work.probability + i);
      const auto kept = hn::Ge(p, limit);
      sum = hn::Add(sum, hn::IfThenElseZero(kept, p));
      result.count += static_cast<int64_t>(hn::CountTrue(D(), kept));
    }
    result.mass += static_cast<double>(hn::GetLane(hn::SumOfLanes(D(), sum)));
  }
  return result;
}

// Writes the ids with probability ≥ threshold to work.ids, ascending; returns how many.
int32_t gather(const SampleWork& work, float threshold) {
  const V limit = hn::Set(D(), threshold);
  int32_t count = 0;
  for (int32_t c = 0; c < work.chunks; ++c) {
    if (work.chunk_peak[c] < threshold) continue;
    for (int32_t i = c * kChunk; i < (c + 1) * kChunk; i += kLanes) {
      const V p = hn::LoadU(D(), work.probability + i);
      if (hn::AllFalse(D(), hn::Ge(p, limit))) continue;
      for (int32_t id = i; id < i + kLanes; ++id) {
        work.ids[count] = id;
        count += work.probability[id] >= threshold ? 1 : 0;
      }
    }
  }
  return count;
}

}  // namespace exode::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exode::cpu {
namespace {

HWY_EXPORT(arg_max);
HWY_EXPORT(exponentiate);
HWY_EXPORT(above);
HWY_EXPORT(gather);

// Below every positive probability: ids with probability 0 are never candidates.
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

// Kept: ids with a larger probability, and ids ≤ id of this probability.
struct Cut {
  float probability = kTiny;
  int32_t id = std::numeric_limits<int32_t>::max();
};

void adjust(const ops::Sample& op, float* logits, const ops::SampleRow& p) {
  const auto* bias = reinterpret_cast<const ops::TokenBias*>(op.bias.data) + p.bias_first;
  for (int32_t i = 0; i < p.bias_count; ++i) logits[bias[i].id] += bias[i].bias;
  const auto* history = reinterpret_cast<const ops::TokenCount*>(op.history.data) + p.history_first;
  for (int32_t i = 0; i < p.history_count; ++i) {
    float& l = logits[history[i].id];
    l = l > 0 ? l / p.repetition : l * p.repetition;
    l -= p.frequency * static_cast<float>(history[i].output_count);
    l -= history[i].output_count > 0 ? p.presence : 0.0f;
  }
}

// Gathers candidates: at least `count` ids and at least `mass`, unless all ids are fewer.
int32_t gather_candidates(const SampleWork& work, int64_t count, double mass) {
  for (float threshold = 0.25f; threshold > kTiny; threshold *= 0.25f) {
    const Above found = HWY_DYNAMIC_DISPATCH(above)(work, threshold);
    if (found.count >= count && found.mass >= mass) {
      return HWY_DYNAMIC_DISPATCH(gather)(work, threshold);
    }
  }
  return HWY_DYNAMIC_DISPATCH(gather)(work, kTiny);
}

class Selection {
 public:
  explicit Selection(const SampleWork& work) : work_(work), before_{work.probability} {}

  // The `k` likeliest of ids[0, count), moved to the front.
  Cut likeliest(int32_t count, int32_t k) {
    if (count <= k) return {};
    std::nth_element(work_.ids, work_.ids + k - 1, work_.ids + count, before_);
    return cut_at(k - 1);
  }
  double mass(int32_t first, int32_t last) const {
    double sum = 0;
    for (int32_t i = first; i < last; ++i) sum += work_.probability[work_.ids[i]];
    return sum;
  }
  // The shortest prefix, in order, of ids[0, count) with mass ≥ target: halving by mass.
  Cut nucleus(int32_t count, double target) {
    int32_t first = 0, last = count;
    while (last - first > 1) {
      const int32_t middle = first + (last - first) / 2;
      std::nth_element(work_.ids + first, work_.ids + middle, work_.ids + last, before_);
      const double half = mass(first, middle);
      if (half >= target) {
        last = middle;
      } else {
        target -= half;
        first = middle;
      }
    }
    return cut_at(first);
  }

 private:
  struct Before {
    const float* p;
    bool operator()(int32_t a, int32_t b) const { return p[a] > p[b] || (p[a] == p[b] && a < b); }
  };
  Cut cut_at(int32_t i) const { return {work_.probability[work_.ids[i]], work_.ids[i]}; }

  const SampleWork& work_;
  Before before_;
};

// Mass summed over chunks can miss the exact sum by rounding; candidates must not be short of it.
constexpr double kMassSlack = 1 + 1e-5;

Cut find_cut(const ops::SampleRow& p, const SampleWork& work, int32_t vocab, double total) {
  Selection selection(work);
  Cut cut;
  if (p.top_k > 0 && p.top_k < vocab) {
    int32_t count = gather_candidates(work, p.top_k, 0);
    cut = selection.likeliest(count, p.top_k);
    count = std::min(count, p.top_k);
    if (p.top_p < 1) cut = selection.nucleus(count, p.top_p * selection.mass(0, count));
  } else if (p.top_p < 1) {
    const double target = p.top_p * total;
    cut = selection.nucleus(gather_candidates(work, 1, target * kMassSlack), target);
  }
  // The likeliest id has probability 1.
  if (p.min_p > cut.probability) cut = {.probability = std::min(p.min_p, 1.0f)};
  return cut;
}

int32_t draw_kept(const SampleWork& work, const Cut& cut, double u) {
  const int32_t above_cut = HWY_DYNAMIC_DISPATCH(gather)(work, cut.probability);
  int32_t count = 0;
  double total = 0;
  for (int32_t i = 0; i < above_cut; ++i) {
    const int32_t id = work.ids[i];
    if (work.probability[id] == cut.probability && id > cut.id) continue;
    total += work.probability[id];
    work.ids[count++] = id;
  }
  const double target = u * total;
  double mass = 0;
  for (int32_t i = 0; i < count; ++i) {
    mass += work.probability[work.ids[i]];
    if (mass > target) return work.ids[i];
  }
  return -1;
}

// From all ids: finds the chunk by its sum, then the id in it. Where rounding leads past the end of
// the chunk, its last possible id is taken.
int32_t draw_any(const SampleWork& work, double target) {
  double mass = 0;
  int32_t c = 0;
  while (c + 1 < work.chunks && mass + work.chunk_sum[c] <= target) mass += work.chunk_sum[c++];
  int32_t last = -1;
  for (int32_t id = c * kChunk; id < (c + 1) * kChunk; ++id) {
    if (work.probability[id] == 0) continue;
    last = id;
    mass += work.probability[id];
    if (mass > target) break;
  }
  return last;
}

int32_t draw(const float* logits, int32_t vocab, const ops::SampleRow& p, const SampleWork& work) {
  const int32_t best = HWY_DYNAMIC_DISPATCH(arg_max)(logits, vocab);
  const float peak = logits[best];
  if (p.temperature == 0 || !std::isfinite(peak)) return best;
  HWY_DYNAMIC_DISPATCH(exponentiate)(logits, vocab, peak, p.temperature, work);
  double total = 0;
  for (int32_t c = 0; c < work.chunks; ++c) total += work.chunk_sum[c];
  if (!(total > 0)) return best;
  const double u = random_unit(p.seed, p.position);
  const bool restricted = p.top_k > 0 || p.top_p < 1 || p.min_p > 0;
  const int32_t drawn =
      restricted ? draw_kept(work, find_cut(p, work, vocab, total), u) : draw_any(work, u * total);
  return drawn < 0 ? best : drawn;
}

int32_t chunk_count(int32_t vocab) { return (vocab + kChunk - 1) / kChunk; }

size_t work_bytes(int32_t vocab) {
  const auto chunks = static_cast<size_t>(chunk_count(vocab));
  const size_t bytes = chunks * (kChunk * (sizeof(float) + sizeof(int32_t)) + sizeof(float) + 8);
  return (bytes + 63) / 64 * 64;
}

SampleWork make_work(std::byte* memory, int32_t vocab) {
  const int32_t chunks = chunk_count(vocab);
  const int64_t padded = int64_t{chunks} * kChunk;
  auto* sums = reinterpret_cast<double*>(memory);
  auto* probability = reinterpret_cast<float*>(sums + chunks);
  auto* ids = reinterpret_cast<int32_t*>(probability + padded);
  auto* peaks = reinterpret_cast<float*>(ids + padded);
  return {probability, ids, peaks, sums, chunks};
}

}  // namespace

size_t scratch_bytes(const DeviceCaps& caps, const ops::Sample& op) {
  return static_cast<size_t>(caps.multiprocessors) * work_bytes(op.logits.cols());
}

void launch(Stream& stream, const ops::Sample& op, Scratch scratch) {
  const auto* rows = reinterpret_cast<const ops::SampleRow*>(op.rows.data);
  const int32_t n = op.logits.rows(), vocab = op.logits.cols();
  stream.pool().run(std::clamp(n, 1, stream.pool().size()), [&](int32_t part, int32_t parts) {
    const SampleWork work =
        make_work(scratch.data() + static_cast<size_t>(part) * work_bytes(vocab), op.vocab_limit);
    for (int32_t r = part; r < n; r += parts) {
      if (rows[r].active == 0) continue;
      float* logits = op.logits.row<float>(r);
      adjust(op, logits, rows[r]);
      op.next_token.row<int32_t>(0)[r] = draw(logits, op.vocab_limit, rows[r], work);
    }
  });
}

}  // namespace exode::cpu
#endif  // HWY_ONCE
