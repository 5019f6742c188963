// A model whose next token is a hash of the prefix: the whole engine without numerics.
#pragma once

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
  std::span<const TokenId> step(std::span<const Slice> slices) override {
    results_.clear();
    int32_t rows = 0;
    for (const Slice& s : slices) {
      rows += s.count;
      const Sequence& q = *s.sequence;
      EXODE_CHECK(s.first == q.computed, "a slice must continue where the last one ended");
      EXODE_CHECK(s.samples == (s.first + s.count == q.length()), "only the last row may sample");
      results_.push_back(s.samples ? fake_next(q.tokens) : -1);
    }
    rows_max = std::max(rows_max, rows);
    return results_;
  }
  int32_t rows_max = 0;

 private:
  std::vector<TokenId> results_;
};

}  // namespace exode::testing
