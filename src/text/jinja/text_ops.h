// String operations that methods and filters share.
#pragma once

#include "text/jinja/runtime.h"

namespace exode::text::jinja {

enum class Sides : uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };

// `characters` is a set; null strips white space.
const Str* strip_text(Runtime& runtime, const Str& str, const Str* characters, Sides sides);
// `separator` null splits at runs of white space. `most` < 0: no limit.
List* split_text(Runtime& runtime, const Str& str, const Str* separator, Int most);
List* split_text_right(Runtime& runtime, const Str& str, const Str* separator, Int most);
List* split_lines(Runtime& runtime, const Str& str, bool keep_ends);
const Str* replace_text(Runtime& runtime, const Str& str, const Str& from, const Str& to, Int most);
// str.format with fields {}, {0}, {name}, and attributes and indices of them; conversions !s and
// !r; no format specifications.
const Str* format_text(Runtime& runtime, const Str& str, const Args& args);
// The % operator of strings: %s, %r, %d, %i, %x, %%.
const Str* format_percent(Runtime& runtime, const Str& str, const Value& values);

}  // namespace exode::text::jinja
