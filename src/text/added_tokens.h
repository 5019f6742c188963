// Tokens that are matched as whole strings before (or after) normalisation, with the flags of
// tokenizer.json. Longest match first, left to right.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace exode::text {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

// A stretch of text, or a token (id ≥ 0) that replaces it.
struct Segment {
  size_t begin = 0, end = 0;
  TokenId id = -1;
};

class AddedTokenMatcher {
 public:
  void add(const AddedToken& token, const std::string& pattern);
  bool empty() const { return tokens_.empty(); }

  // Cuts text[begin, end) into segments. `allowed(token, match_begin, match_end)` can turn a match
  // down, which leaves its text plain.
  template <class Allowed>
  void split(std::string_view text, size_t begin, size_t end, const Allowed& allowed,
             std::vector<Segment>& out) const {
    size_t done = begin;
    for (size_t i = begin; i < end;) {
      const Entry* e = longest(text.substr(0, end), i);
      const size_t stop = e == nullptr ? i : i + e->pattern.size();
      if (e == nullptr || !allowed(e->token, i, stop)) {
        ++i;
        continue;
      }
      if (!word_boundaries_ok(*e, text.substr(0, end), begin, i, stop)) {
        i = stop;
        continue;
      }
      const Segment match = stripped(*e, text.substr(0, end), done, i, stop);
      if (match.begin > done) out.push_back({done, match.begin, -1});
      out.push_back(match);
      done = match.end;
      i = std::max(match.end, stop);
    }
    if (done < end) out.push_back({done, end, -1});
  }

 private:
  struct Entry {
    AddedToken token;
    std::string pattern;  // content, normalised when the token is matched in normalised text
  };
  const Entry* longest(std::string_view text, size_t at) const;
  static bool word_boundaries_ok(const Entry& e, std::string_view text, size_t begin, size_t start, size_t stop);
  static Segment stripped(const Entry& e, std::string_view text, size_t done, size_t start, size_t stop);

  std::vector<Entry> tokens_;
  std::array<std::vector<int32_t>, 256> by_first_byte_;  // longest pattern first
};

}  // namespace exode::text
