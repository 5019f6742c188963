#include "text/jinja/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/special_case.h"
#include "text/unicode.h"

namespace exode::text::jinja {
namespace {

constexpr uint32_t kCapitalSigma = 0x3A3;
constexpr uint32_t kFinalSigma = 0x3C2;
constexpr uint32_t kDottedCapitalI = 0x130;

utf8proc_category_t category(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_cased(uint32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT;
}

bool is_case_ignorable(uint32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME ||
         kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_LM ||
         kind == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
         c == 0x2019;
}

const SpecialCase* special_case(uint32_t c) {
  const auto it =
      std::lower_bound(kSpecialCases.begin(), kSpecialCases.end(), c,
                       [](const SpecialCase& s, uint32_t value) { return s.code_point < value; });
  return it != kSpecialCases.end() && it->code_point == c ? &*it : nullptr;
}

void append_all(const std::array<uint32_t, 3>& points, std::string& out) {
  for (const uint32_t c : points) {
    if (c != 0) append_utf8(c, out);
  }
}

void append_upper(uint32_t c, std::string& out) {
  if (const SpecialCase* special = special_case(c)) return append_all(special->upper, out);
  append_utf8(static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
}

void append_title(uint32_t c, std::string& out) {
  if (const SpecialCase* special = special_case(c)) return append_all(special->title, out);
  append_utf8(static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
}

// A sigma at the end of a word has a form of its own.
bool ends_word(const CodePoints& text, size_t i) {
  size_t before = i;
  while (before > 0 && is_case_ignorable(text.points[before - 1])) --before;
  if (before == 0 || !is_cased(text.points[before - 1])) return false;
  size_t after = i + 1;
  while (after < text.points.size() && is_case_ignorable(text.points[after])) ++after;
  return after == text.points.size() || !is_cased(text.points[after]);
}

void append_lower(const CodePoints& text, size_t i, std::string& out) {
  const uint32_t c = text.points[i];
  if (c == kCapitalSigma && ends_word(text, i)) return append_utf8(kFinalSigma, out);
  if (c == kDottedCapitalI) {
    append_utf8('i', out);
    return append_utf8(0x307, out);
  }
  append_utf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<signed char>(c) >= 0; });
}

CodePoints decode(std::string_view text) {
  return is_valid_utf8(text) ? decode_utf8(text) : decode_utf8(to_valid_utf8(text));
}

}  // namespace

uint32_t take_code_point(std::string_view text, size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return ++at, lead;
  const int length = utf8_length(text.substr(at));
  if (length <= 1) return ++at, 0xFFFD;
  uint32_t c = lead & (0xFFu >> (length + 1));
  for (int i = 1; i < length; ++i) {
    c = c << 6 | (static_cast<unsigned char>(text[at + static_cast<size_t>(i)]) & 0x3F);
  }
  at += static_cast<size_t>(length);
  return c;
}

size_t skip_code_points(std::string_view text, size_t at, int64_t count) {
  for (; count > 0 && at < text.size(); --count) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  }
  return at;
}

bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view trim_left(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    size_t end = at;
    if (!is_space(take_code_point(text, end))) break;
    at = end;
  }
  return text.substr(at);
}

std::string_view trim_right(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    size_t end = start;
    if (!is_space(take_code_point(text, end)) || end != text.size()) break;
    text = text.substr(0, start);
  }
  return text;
}

std::string to_upper(std::string_view text) {
  std::string out;
  if (is_ascii(text)) {
    for (const char c : text) out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    return out;
  }
  for (const uint32_t c : decode(text).points) append_upper(c, out);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  if (is_ascii(text)) {
    for (const char c : text) out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return out;
  }
  const CodePoints points = decode(text);
  for (size_t i = 0; i < points.points.size(); ++i) append_lower(points, i, out);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  const CodePoints points = decode(text);
  bool inside_word = false;
  for (size_t i = 0; i < points.points.size(); ++i) {
    if (inside_word) {
      append_lower(points, i, out);
    } else {
      append_title(points.points[i], out);
    }
    inside_word = is_cased(points.points[i]);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  const CodePoints points = decode(text);
  for (size_t i = 0; i < points.points.size(); ++i) {
    if (i == 0) {
      append_title(points.points[i], out);
    } else {
      append_lower(points, i, out);
    }
  }
  return out;
}

bool is_alpha(uint32_t c) {
  const auto kind = category(c);
  return is_cased(c) || kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}

bool is_digit_character(uint32_t c) {
  const bool superscript = c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
                           (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
  return category(c) == UTF8PROC_CATEGORY_ND || superscript;
}

bool is_numeric(uint32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

bool is_printable(uint32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

}  // namespace exode::text::jinja
