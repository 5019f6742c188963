// Code point classes of the tokenizer patterns, as sorted ranges (generated).
#pragma once

#include <cstdint>

namespace exode::text {

enum class CharClass : uint8_t { kOther, kLetter, kMark, kNumber, kSpace };

struct CharRange {
  uint32_t first, last;  // inclusive
  CharClass type;
};
extern const CharRange kCharRanges[];
extern const int kCharRangeCount;

}  // namespace exode::text
