// What the tokenizer must know of code points, as sorted ranges (generated).
#pragma once

#include <cstdint>

namespace exode::text {

enum class CharClass : uint8_t { kOther, kLetter, kMark, kNumber, kSpace };

struct CharRange {
  uint32_t first, last;  // inclusive
  CharClass type;
};
struct PointRange {
  uint32_t first, last;  // inclusive
};

extern const CharRange kCharRanges[];  // \p{L}, \p{M}, \p{N} and \s of the tokenizer patterns
extern const int kCharRangesCount;
extern const PointRange kMoreDigits[];  // digits of the Digits step that \p{N} does not know
extern const int kMoreDigitsCount;
extern const PointRange kWordRanges[];  // \w: what a single_word token must not touch
extern const int kWordRangesCount;
extern const PointRange
    kNfcInert[];  // newer than the NFC of the reference, which leaves them alone
extern const int kNfcInertCount;

}  // namespace exode::text
