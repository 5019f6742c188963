// The Unicode that tokenisation needs: decoding, character classes, NFC.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode_tables.h"

namespace exode::text {

CharClass char_class(uint32_t code_point);
bool is_split_digit(uint32_t code_point);     // what the Digits step of a pre-tokenizer splits off
bool is_word_character(uint32_t code_point);  // \w

// Bytes of the UTF-8 sequence at the start of `text`: 1…4 when well-formed. When not, minus the
// length of the maximal ill-formed subpart that one U+FFFD stands for (Unicode 15, section 3.9).
// 0 when `text` ends inside a sequence that more bytes could complete.
int utf8_length(std::string_view text);

// Ill-formed parts become U+FFFD, one for each maximal subpart.
std::string to_valid_utf8(std::string_view text);
bool is_valid_utf8(std::string_view text);

// A text as code points with the byte offset of each; offsets has one entry more, the length.
struct CodePoints {
  std::vector<uint32_t> points;
  std::vector<uint32_t> offsets;
};
CodePoints decode_utf8(std::string_view valid_text);

void append_utf8(uint32_t code_point, std::string& out);

// Canonical composition as the reference does it (tools/make_unicode_tables.py). `text` is valid
// UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace exode::text
