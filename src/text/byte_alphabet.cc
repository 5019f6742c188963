#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace exode::text {
namespace {

constexpr size_t kCharacters = 324;  // 256, and as many as there are unprintable bytes

// Printable Latin-1 stands for itself; the other 68 bytes follow at U+0100 in ascending order.
constexpr std::array<int16_t, kCharacters> kByteOfCharacter = [] {
  std::array<int16_t, kCharacters> table{};
  for (int16_t& entry : table) entry = -1;
  size_t next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    table[printable ? static_cast<size_t>(b) : next++] = static_cast<int16_t>(b);
  }
  return table;
}();

}  // namespace

bool bytes_of_token(std::string_view written, std::string& out) {
  out.clear();
  for (size_t i = 0; i < written.size();) {
    const auto lead = static_cast<uint8_t>(written[i]);
    size_t character = lead;
    size_t length = 1;
    if (lead >= 0xc0) {
      // Two bytes; what is longer lies outside the table.
      character = lead < 0xe0 ? (lead & 31u) << 6 | (static_cast<uint8_t>(written[i + 1]) & 63u)
                              : kCharacters;
      length = 2;
    }
    if (character >= kCharacters || kByteOfCharacter[character] < 0) {
      out = written;
      return false;
    }
    out.push_back(static_cast<char>(kByteOfCharacter[character]));
    i += length;
  }
  return true;
}

}  // namespace exode::text
