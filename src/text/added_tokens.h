// Tokens that are found as whole strings before (or after) normalisation, with the flags of
// tokenizer.json. The leftmost match wins, of those that start together the longest.
#pragma once

#include <array>
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

// What becomes of a match: it is taken, or its whole text stays plain, or only its first byte
// does and the search goes on inside it.
enum class Verdict : uint8_t { kTake, kLeave, kLookInside };

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() { roots_.fill(-1); }

  // `pattern` is the content as it is looked for: normalised where the text is. Of two tokens with
  // one pattern the first stays.
  void add(const AddedToken& token, std::string_view pattern);
  bool has_special() const { return has_special_; }

  // Cuts `text` into segments. judge(token, match_begin, match_end) → Verdict.
  template <class Judge>
  void split(std::string_view text, const Judge& judge, std::vector<Segment>& out) const {
    size_t done = 0;
    for (size_t i = 0; i < text.size();) {
      size_t stop = i;
      const AddedToken* token = longest(text, i, stop);
      const Verdict verdict = token == nullptr ? Verdict::kLookInside : judge(*token, i, stop);
      if (verdict == Verdict::kLookInside) {
        ++i;
        continue;
      }
      if (verdict == Verdict::kTake && stands_alone(*token, text, i, stop)) {
        const size_t start = token->lstrip ? before_spaces(text, done, i) : i;
        if (done < start) out.push_back({done, start, -1});
        out.push_back({start, stop, token->id});
        done = token->rstrip ? after_spaces(text, stop, done) : stop;
      }
      // White space that rstrip took is searched again, and a token in it ends the taking: so does
      // the reference.
      i = stop;
    }
    if (done < text.size()) out.push_back({done, text.size(), -1});
  }

 private:
  // A trie; the children of a node are a chain of siblings.
  struct Node {
    uint8_t byte = 0;
    int32_t token = -1;
    int32_t child = -1, sibling = -1;
  };
  int32_t child_of(int32_t node, uint8_t byte) const;
  const AddedToken* longest(std::string_view text, size_t at, size_t& stop) const;
  static bool stands_alone(const AddedToken& token, std::string_view text, size_t begin,
                           size_t end);
  // Start of the white space that ends at `end`, not before `limit`.
  static size_t before_spaces(std::string_view text, size_t limit, size_t end);
  // End of the white space that starts at `begin`. Between `begin` and `known` there is no other.
  static size_t after_spaces(std::string_view text, size_t begin, size_t known);

  std::vector<AddedToken> tokens_;
  std::array<int32_t, 256> roots_{};
  std::vector<Node> nodes_;
  bool has_special_ = false;
};

}  // namespace exode::text
