// A model whose next token is a hash of the prefix: the whole engine without numerics.
#pragma once

#include <deque>

#include "base/rng.h"
#include "engine/stepper.h"

namespace exode::testing {

inline constexpr int32_t kFakeVocab = 1000;

inline TokenId fake_next(std::span<const TokenId> prefix) {
  uint64_t hash = 1;
  for (TokenId id : prefix) hash = mix64(hash ^ static_cast<uint64_t>(id));
  return static_cast<TokenId>(hash % kFakeVocab);
}

inline std::vector<TokenId> fake_continuation(std::vector<TokenId> prompt, int32_t count) {
  std::vector<TokenId> out;
  for (int32_t i = 0; i < count; ++i) {
    prompt.push_back(fake_next(prompt));
    out.push_back(prompt.back());
  }
  return out;
}

class FakeStepper final : public Stepper {
 public:
  void submit(std::span<const Slice> slices) override {
    int32_t rows = 0;
    std::vector<TokenId> results;
    for (const Slice& s : slices) {
      rows += s.count;
      const Sequence& q = *s.sequence;
      EXODE_CHECK(s.first == q.computed, "a slice must continue where the last one ended");
      EXODE_CHECK(s.samples == (s.first + s.count == q.length_soon()), "only the last row samples");
      std::vector<TokenId> prefix = q.tokens;
      if (s.drawn >= 0) prefix.push_back(last_drawn_[static_cast<size_t>(s.drawn)]);
      results.push_back(s.samples ? fake_next(prefix) : -1);
    }
    last_drawn_.clear();
    for (TokenId id : results) {
      if (id >= 0) last_drawn_.push_back(id);
    }
    rows_max = std::max(rows_max, rows);
    steps_.push_back(std::move(results));
  }
  std::span<const TokenId> collect() override {
    results_ = std::move(steps_.front());
    steps_.pop_front();
    return results_;
  }
  int32_t ahead() const override { return steps_ahead; }
  int32_t steps_ahead = 0;
  int32_t rows_max = 0;

 private:
  std::vector<TokenId> results_, last_drawn_;
  std::deque<std::vector<TokenId>> steps_;
};

}  // namespace exode::testing
