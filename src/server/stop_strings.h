// Finds stop strings in text that comes in pieces, holding back what may turn out to be the start
// of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace exode::server {

// Length of the longest end of `text` that is a proper beginning of `word`.
size_t overlap(std::string_view text, std::string_view word);

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> words) : words_(std::move(words)) {}

  // Text that is safe to show. After a match everything further is dropped. The match that begins
  // first wins, so the result does not depend on how the text was cut.
  std::string feed(std::string_view text);
  std::string finish();  // what was held back
  bool matched() const { return matched_; }

 private:
  std::vector<std::string> words_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace exode::server
