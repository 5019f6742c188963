#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/check.h"

namespace exode::text {
namespace {

// The range that holds c, or null.
template <class Range>
const Range* find_range(const Range* ranges, int count, uint32_t c) {
  const Range* it = std::upper_bound(
      ranges, ranges + count, c, [](uint32_t value, const Range& r) { return value < r.first; });
  return it != ranges && c <= (it - 1)->last ? it - 1 : nullptr;
}

CharClass search_class(uint32_t c) {
  const CharRange* range = find_range(kCharRanges, kCharRangesCount, c);
  return range == nullptr ? CharClass::kOther : range->type;
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

// Bytes of `text` before the first ill-formed or unfinished sequence.
size_t valid_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const int n = utf8_length(text.substr(i));
    if (n <= 0) return i;
    i += static_cast<size_t>(n);
  }
  return i;
}

void append_nfc(std::string_view text, std::string& out) {
  utf8proc_uint8_t* result = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  EXODE_CHECK(size >= 0, "NFC of a text that is not valid UTF-8, or no memory");
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
  std::free(result);
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

bool is_split_digit(uint32_t c) {
  return char_class(c) == CharClass::kNumber ||
         (c >= 128 && find_range(kMoreDigits, kMoreDigitsCount, c) != nullptr);
}

bool is_word_character(uint32_t c) {
  return find_range(kWordRanges, kWordRangesCount, c) != nullptr;
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

bool is_valid_utf8(std::string_view text) { return valid_prefix(text) == text.size(); }

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t valid = valid_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return out;
    const int n = utf8_length(text);
    out += "\xef\xbf\xbd";
    text.remove_prefix(n == 0 ? text.size() : static_cast<size_t>(-n));
  }
}

CodePoints decode_utf8(std::string_view text) {
  CodePoints out;
  out.points.reserve(text.size());
  out.offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) {
      return static_cast<uint32_t>(static_cast<uint8_t>(text[i + k]));
    };
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
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xcc; });
  if (plain) return std::string(text);
  std::string out;
  out.reserve(text.size());
  const CodePoints all = decode_utf8(text);
  size_t done = 0;
  const auto normalize_up_to = [&](size_t end) {
    if (end > done) append_nfc(text.substr(done, end - done), out);
  };
  for (size_t i = 0; i < all.points.size(); ++i) {
    // An inert code point lets nothing move or combine across it, so the text may be cut there.
    const uint32_t c = all.points[i];
    if (c < kNfcInert[0].first || find_range(kNfcInert, kNfcInertCount, c) == nullptr) continue;
    normalize_up_to(all.offsets[i]);
    done = all.offsets[i + 1];
    out.append(text.substr(all.offsets[i], done - all.offsets[i]));
  }
  normalize_up_to(text.size());
  return out;
}

}  // namespace exode::text
