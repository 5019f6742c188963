// The parts of Python's str that depend on Unicode: white space, code points, case.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace exode::text::jinja {

// Takes the code point at `at`. A byte that starts none counts as one code point, U+FFFD.
uint32_t take_code_point(std::string_view text, size_t& at);
// Byte offset of the `count`-th code point from `at`; the length when there are fewer.
size_t skip_code_points(std::string_view text, size_t at, int64_t count);

bool is_space(uint32_t code_point);  // str.isspace
std::string_view trim_left(std::string_view text);
std::string_view trim_right(std::string_view text);
inline std::string_view trim(std::string_view text) { return trim_left(trim_right(text)); }

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);

bool is_alpha(uint32_t code_point);
bool is_digit_character(uint32_t code_point);
bool is_numeric(uint32_t code_point);
bool is_upper(uint32_t code_point);
bool is_lower(uint32_t code_point);
bool is_printable(uint32_t code_point);  // what repr() writes as itself

}  // namespace exode::text::jinja
