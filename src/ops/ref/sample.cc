// Reference sampler: sorts the whole vocabulary, in double precision.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "ops/ref/access.h"
#include "ops/ref/ref.h"

namespace exode::ref {
namespace {

template <class T>
T entry(const ConstTensorView& t, int32_t i) {
  T value;
  std::memcpy(&value, t.data + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

void adjust(const ops::Sample& op, int32_t row, const ops::SampleRow& p) {
  for (int32_t i = p.bias_first; i < p.bias_first + p.bias_count; ++i) {
    const auto b = entry<ops::TokenBias>(op.bias, i);
    store(op.logits, row, b.id, load(op.logits, row, b.id) + b.bias);
  }
  for (int32_t i = p.history_first; i < p.history_first + p.history_count; ++i) {
    const auto h = entry<ops::TokenCount>(op.history, i);
    double l = load(op.logits, row, h.id);
    l = l > 0 ? l / p.repetition : l * p.repetition;
    l -= static_cast<double>(p.frequency) * h.output_count;
    l -= h.output_count > 0 ? p.presence : 0.0f;
    store(op.logits, row, h.id, l);
  }
}

// Indices of the kept ids, likeliest first.
std::vector<int32_t> kept_ids(const std::vector<double>& probability, const ops::SampleRow& p) {
  std::vector<int32_t> order(probability.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int32_t i) { return probability[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return at(a) > at(b); });
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < order.size())
    order.resize(static_cast<size_t>(p.top_k));
  double total = 0;
  for (int32_t id : order) total += at(id);
  if (p.top_p < 1) {
    double mass = 0;
    size_t count = 0;
    while (count < order.size() && mass < p.top_p * total) mass += at(order[count++]);
    order.resize(std::max<size_t>(count, 1));
  }
  const double floor = p.min_p * at(order[0]);
  while (order.size() > 1 && at(order.back()) < floor) order.pop_back();
  return order;
}

int32_t draw(const ops::Sample& op, int32_t row, const ops::SampleRow& p) {
  std::vector<double> logit(static_cast<size_t>(op.vocab_limit));
  int32_t best = 0;
  for (int32_t i = 0; i < op.vocab_limit; ++i) {
    const double l = load(op.logits, row, i);
    logit[static_cast<size_t>(i)] = std::isnan(l) ? -std::numeric_limits<double>::infinity() : l;
    if (logit[static_cast<size_t>(i)] > logit[static_cast<size_t>(best)]) best = i;
  }
  const double peak = logit[static_cast<size_t>(best)];
  if (p.temperature == 0 || !std::isfinite(peak)) return best;
  std::vector<double> probability(logit.size());
  for (size_t i = 0; i < logit.size(); ++i)
    probability[i] = std::exp((logit[i] - peak) / p.temperature);
  std::vector<int32_t> kept = kept_ids(probability, p);
  std::sort(kept.begin(), kept.end());
  double total = 0;
  for (int32_t id : kept) total += probability[static_cast<size_t>(id)];
  const double target = random_unit(p.seed, p.position) * total;
  double mass = 0;
  for (int32_t id : kept) {
    mass += probability[static_cast<size_t>(id)];
    if (mass > target) return id;
  }
  return kept.back();
}

}  // namespace

void launch(Stream&, const ops::Sample& op, Scratch) {
  for (int32_t r = 0; r < op.logits.rows(); ++r) {
    const auto p = entry<ops::SampleRow>(op.rows, r);
    if (p.active == 0) continue;
    adjust(op, r, p);
    store(op.next_token, r, 0, draw(op, r, p));
  }
}

}  // namespace exode::ref
