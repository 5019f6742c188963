#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace exode::text {
namespace {

// Start of the code point that ends at `end`.
size_t previous_point(std::string_view text, size_t end) {
  size_t i = end - 1;
  while (i > 0 && (static_cast<uint8_t>(text[i]) & 0xc0u) == 0x80u) --i;
  return i;
}

size_t point_length(std::string_view text, size_t at) {
  const int n = utf8_length(text.substr(at));
  return n > 0 ? static_cast<size_t>(n) : 1;
}

uint32_t point_at(std::string_view text, size_t at) {
  return decode_utf8(text.substr(at, point_length(text, at))).points[0];
}

bool is_space_at(std::string_view text, size_t at) {
  return char_class(point_at(text, at)) == CharClass::kSpace;
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view pattern) {
  int32_t node = -1;
  for (const char c : pattern) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = child_of(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      int32_t& first = node < 0 ? roots_[byte] : nodes_[static_cast<size_t>(node)].child;
      const Node added{.byte = byte, .sibling = node < 0 ? -1 : first};
      first = next;
      nodes_.push_back(added);
    }
    node = next;
  }
  if (node < 0 || nodes_[static_cast<size_t>(node)].token >= 0) return;
  nodes_[static_cast<size_t>(node)].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  has_special_ = has_special_ || token.special;
}

int32_t AddedTokenMatcher::child_of(int32_t node, uint8_t byte) const {
  if (node < 0) return roots_[byte];
  int32_t child = nodes_[static_cast<size_t>(node)].child;
  while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].sibling;
  }
  return child;
}

const AddedToken* AddedTokenMatcher::longest(std::string_view text, size_t at, size_t& stop) const {
  const AddedToken* found = nullptr;
  int32_t node = -1;
  for (size_t i = at; i < text.size(); ++i) {
    node = child_of(node, static_cast<uint8_t>(text[i]));
    if (node < 0) break;
    if (const int32_t token = nodes_[static_cast<size_t>(node)].token; token >= 0) {
      found = &tokens_[static_cast<size_t>(token)];
      stop = i + 1;
    }
  }
  return found;
}

bool AddedTokenMatcher::stands_alone(const AddedToken& token, std::string_view text, size_t begin,
                                     size_t end) {
  if (!token.single_word) return true;
  const bool before = begin > 0 && is_word_character(point_at(text, previous_point(text, begin)));
  const bool after = end < text.size() && is_word_character(point_at(text, end));
  return !before && !after;
}

size_t AddedTokenMatcher::before_spaces(std::string_view text, size_t limit, size_t end) {
  while (end > limit && is_space_at(text, previous_point(text, end))) {
    end = previous_point(text, end);
  }
  return end;
}

size_t AddedTokenMatcher::after_spaces(std::string_view text, size_t begin, size_t known) {
  size_t end = std::max(begin, known);
  while (end < text.size() && is_space_at(text, end)) end += point_length(text, end);
  return end;
}

}  // namespace exode::text
