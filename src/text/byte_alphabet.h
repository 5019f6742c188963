// The printable alphabet of byte-level vocabularies: each byte is written as one character, so
// that the tokens of a JSON file can hold any bytes.
#pragma once

#include <string>
#include <string_view>

namespace exode::text {

// Replaces `out` by the bytes that `written` (valid UTF-8) stands for. False when a character is
// not of the alphabet; then the string stands for itself, and `out` holds it.
bool bytes_of_token(std::string_view written, std::string& out);

}  // namespace exode::text
