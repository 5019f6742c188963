#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace exode::text {
namespace {

CharClass search_class(uint32_t c) {
  const CharRange* end = kCharRanges + kCharRangeCount;
  const CharRange* it =
      std::upper_bound(kCharRanges, end, c, [](uint32_t value, const CharRange& r) { return value < r.first; });
  return it != kCharRanges && c <= (it - 1)->last ? (it - 1)->type : CharClass::kOther;
}

bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xc0u) == 0x80u; }

// Allowed range of the second byte: excludes overlong forms, surrogates and values past U+10FFFF.
bool second_byte_ok(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xe0:
      return second >= 0xa0 && second <= 0xbf;
    case 0xed:
      return second >= 0x80 && second <= 0x9f;
    case 0xf0:
      return second >= 0x90 && second <= 0xbf;
    case 0xf4:
      return second >= 0x80 && second <= 0x8f;
    default:
      return second >= 0x80 && second <= 0xbf;
  }
}

}  // namespace

CharClass char_class(uint32_t c) {
  static const std::array<CharClass, 128> ascii = [] {
    std::array<CharClass, 128> table{};
    for (uint32_t i = 0; i < 128; ++i) table[i] = search_class(i);
    return table;
  }();
  return c < 128 ? ascii[c] : search_class(c);
}

int utf8_length(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return -1;
  const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (text.size() == 1) return 0;
  if (!second_byte_ok(lead, static_cast<uint8_t>(text[1]))) return -1;
  for (int i = 2; i < length; ++i) {
    if (static_cast<size_t>(i) == text.size()) return 0;
    if (!is_continuation(text[static_cast<size_t>(i)])) return -i;
  }
  return length;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const int n = utf8_length(text);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const int n = utf8_length(text);
    const size_t used = n == 0 ? text.size() : static_cast<size_t>(std::abs(n));
    out += n > 0 ? text.substr(0, used) : std::string_view("\xef\xbf\xbd");
    text.remove_prefix(used);
  }
  return out;
}

CodePoints decode_utf8(std::string_view text) {
  CodePoints out;
  out.points.reserve(text.size());
  out.offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i + k])); };
    const uint32_t lead = byte(0);
    uint32_t point = lead;
    size_t length = 1;
    if (lead >= 0xf0) {
      point = (lead & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
      length = 4;
    } else if (lead >= 0xe0) {
      point = (lead & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
      length = 3;
    } else if (lead >= 0xc0) {
      point = (lead & 31) << 6 | (byte(1) & 63);
      length = 2;
    }
    out.points.push_back(point);
    out.offsets.push_back(static_cast<uint32_t>(i));
    i += length;
  }
  out.offsets.push_back(static_cast<uint32_t>(text.size()));
  return out;
}

void append_utf8(uint32_t c, std::string& out) {
  const auto add = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xc0 | c >> 6);
    add(0x80 | (c & 63));
  } else if (c < 0x10000) {
    add(0xe0 | c >> 12);
    add(0x80 | (c >> 6 & 63));
    add(0x80 | (c & 63));
  } else {
    add(0xf0 | c >> 18);
    add(0x80 | (c >> 12 & 63));
    add(0x80 | (c >> 6 & 63));
    add(0x80 | (c & 63));
  }
}

std::string to_nfc(std::string_view text) {
  // Nothing below U+0300 decomposes or combines under NFC.
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xcc; });
  if (plain) return std::string(text);
  utf8proc_uint8_t* result = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  if (size < 0) return std::string(text);  // not valid UTF-8, which callers exclude
  std::string out(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
  std::free(result);
  return out;
}

}  // namespace exode::text
