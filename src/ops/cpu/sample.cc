// Sampler on the CPU: one pass over the vocabulary for the greedy and the unrestricted case; with
// top-k or top-p only the likeliest ids are ordered, as many as turn out to be needed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "ops/cpu/cpu.h"

namespace exode::cpu {
namespace {

struct Work {  // of one thread, vocab entries each
  float* probability;
  int32_t* order;
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

// NaN never wins; the lowest id wins ties.
int32_t arg_max(const float* logits, int32_t count) {
  int32_t best = 0;
  float peak = -std::numeric_limits<float>::infinity();
  for (int32_t i = 0; i < count; ++i) {
    if (logits[i] > peak) {
      peak = logits[i];
      best = i;
    }
  }
  return best;
}

// Puts the `count` likeliest of order[0, size) first, in order; ties to the lower id.
void select(const float* probability, int32_t* order, int32_t size, int32_t count) {
  const auto before = [&](int32_t a, int32_t b) {
    return probability[a] > probability[b] || (probability[a] == probability[b] && a < b);
  };
  if (count < size) std::nth_element(order, order + count - 1, order + size, before);
  std::sort(order, order + count, before);
}

// Length of the shortest prefix of the ordered ids with mass ≥ target; selects more ids until the
// mass is there.
int32_t nucleus(const float* probability, int32_t* order, int32_t size, double target) {
  for (int32_t ready = std::min(size, 64);; ready = std::min(size, ready * 8)) {
    select(probability, order, size, ready);
    double mass = 0;
    for (int32_t i = 0; i < ready; ++i) {
      mass += probability[order[i]];
      if (mass >= target) return i + 1;
    }
    if (ready == size) return size;
  }
}

// How many of work.order are kept; they come first, likeliest first.
int32_t restrict_ids(const ops::SampleRow& p, const Work& work, int32_t vocab, double total) {
  std::iota(work.order, work.order + vocab, 0);
  int32_t kept = vocab;
  if (p.top_k > 0 && p.top_k < vocab) {
    kept = p.top_k;
    select(work.probability, work.order, vocab, kept);
    total = 0;
    for (int32_t i = 0; i < kept; ++i) total += work.probability[work.order[i]];
  }
  if (p.top_p < 1) {
    kept = nucleus(work.probability, work.order, kept, static_cast<double>(p.top_p) * total);
  } else if (kept == vocab) {
    select(work.probability, work.order, vocab, vocab);
  }
  const float floor = p.min_p * work.probability[work.order[0]];
  while (kept > 1 && work.probability[work.order[kept - 1]] < floor) --kept;
  return kept;
}

int32_t draw_from(const float* probability, const int32_t* ids, int32_t count, double target) {
  double mass = 0;
  for (int32_t i = 0; i < count; ++i) {
    mass += probability[ids == nullptr ? i : ids[i]];
    if (mass > target) return ids == nullptr ? i : ids[i];
  }
  return -1;
}

int32_t draw(const float* logits, int32_t vocab, const ops::SampleRow& p, const Work& work) {
  const int32_t best = arg_max(logits, vocab);
  const float peak = logits[best];
  if (p.temperature == 0 || !std::isfinite(peak)) return best;
  double total = 0;
  for (int32_t i = 0; i < vocab; ++i) {
    const float value = std::exp((logits[i] - peak) / p.temperature);
    work.probability[i] = std::isnan(value) ? 0.0f : value;
    total += work.probability[i];
  }
  const double u = random_unit(p.seed, p.position);
  int32_t drawn = -1;
  if (p.top_k > 0 || p.top_p < 1 || p.min_p > 0) {
    const int32_t kept = restrict_ids(p, work, vocab, total);
    std::sort(work.order, work.order + kept);
    double mass = 0;
    for (int32_t i = 0; i < kept; ++i) mass += work.probability[work.order[i]];
    drawn = draw_from(work.probability, work.order, kept, u * mass);
  } else {
    drawn = draw_from(work.probability, nullptr, vocab, u * total);
  }
  return drawn < 0 ? best : drawn;
}

size_t work_bytes(int32_t vocab) { return static_cast<size_t>(vocab) * (sizeof(float) + sizeof(int32_t)); }

}  // namespace

size_t scratch_bytes(const DeviceCaps& caps, const ops::Sample& op) {
  return static_cast<size_t>(caps.multiprocessors) * work_bytes(op.logits.cols());
}

void launch(Stream& stream, const ops::Sample& op, Scratch scratch) {
  const auto* rows = reinterpret_cast<const ops::SampleRow*>(op.rows.data);
  const int32_t n = op.logits.rows(), vocab = op.logits.cols();
  stream.pool().run(std::clamp(n, 1, stream.pool().size()), [&](int32_t part, int32_t parts) {
    auto* memory = reinterpret_cast<float*>(scratch.data() + static_cast<size_t>(part) * work_bytes(vocab));
    const Work work{memory, reinterpret_cast<int32_t*>(memory + vocab)};
    for (int32_t r = part; r < n; r += parts) {
      if (rows[r].active == 0) continue;
      float* logits = op.logits.row<float>(r);
      adjust(op, logits, rows[r]);
      op.next_token.row<int32_t>(0)[r] = draw(logits, op.vocab_limit, rows[r], work);
    }
  });
}

}  // namespace exode::cpu
