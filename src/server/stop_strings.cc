#include "server/stop_strings.h"

#include <algorithm>

namespace exode::server {

size_t overlap(std::string_view text, std::string_view word) {
  if (word.empty()) return 0;
  for (size_t n = std::min(text.size(), word.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == word.substr(0, n)) return n;
  }
  return 0;
}

std::string StopStrings::feed(std::string_view text) {
  if (matched_) return {};
  if (words_.empty()) return std::string(text);
  held_ += text;
  size_t first = std::string::npos, keep = 0;
  for (const std::string& word : words_) {
    first = std::min(first, held_.find(word));
    keep = std::max(keep, overlap(held_, word));
  }
  // A longer word that began earlier may still be completed by what follows.
  const size_t safe = std::min(first, held_.size() - keep);
  std::string out = held_.substr(0, safe);
  if (first != std::string::npos && first <= held_.size() - keep) {
    matched_ = true;
    held_.clear();
  } else {
    held_.erase(0, safe);
  }
  return out;
}

std::string StopStrings::finish() {
  if (matched_) return {};
  size_t first = held_.size();
  for (const std::string& word : words_) first = std::min(first, held_.find(word));
  matched_ = first < held_.size();
  std::string out = held_.substr(0, first);
  held_.clear();
  return out;
}

}  // namespace exode::server
