#include "text/added_tokens.h"

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

// \w: letters, marks, numbers and connector punctuation.
bool is_word(uint32_t c) {
  const CharClass type = char_class(c);
  const bool connector = c == '_' || c == 0x203f || c == 0x2040 || c == 0x2054 || (c >= 0xfe33 && c <= 0xfe34) ||
                         (c >= 0xfe4d && c <= 0xfe4f) || c == 0xff3f || c == 0x200c || c == 0x200d;
  return connector || type == CharClass::kLetter || type == CharClass::kMark || type == CharClass::kNumber;
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, const std::string& pattern) {
  if (pattern.empty()) return;
  const auto index = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token, pattern});
  auto& bucket = by_first_byte_[static_cast<uint8_t>(pattern[0])];
  const auto longer = [&](int32_t i) { return tokens_[static_cast<size_t>(i)].pattern.size() >= pattern.size(); };
  bucket.insert(std::partition_point(bucket.begin(), bucket.end(), longer), index);
}

const AddedTokenMatcher::Entry* AddedTokenMatcher::longest(std::string_view text, size_t at) const {
  for (int32_t i : by_first_byte_[static_cast<uint8_t>(text[at])]) {
    const Entry& e = tokens_[static_cast<size_t>(i)];
    if (text.substr(at, e.pattern.size()) == e.pattern) return &e;
  }
  return nullptr;
}

bool AddedTokenMatcher::word_boundaries_ok(const Entry& e, std::string_view text, size_t begin, size_t start,
                                           size_t stop) {
  if (!e.token.single_word) return true;
  const bool before = start > begin && is_word(point_at(text, previous_point(text, start)));
  const bool after = stop < text.size() && is_word(point_at(text, stop));
  return !before && !after;
}

Segment AddedTokenMatcher::stripped(const Entry& e, std::string_view text, size_t done, size_t start, size_t stop) {
  const auto space_at = [&](size_t i) { return char_class(point_at(text, i)) == CharClass::kSpace; };
  while (e.token.lstrip && start > done && space_at(previous_point(text, start))) start = previous_point(text, start);
  while (e.token.rstrip && stop < text.size() && space_at(stop)) stop += point_length(text, stop);
  return {start, stop, e.token.id};
}

}  // namespace exode::text
