// Requests come in as nlohmann JSON; answers of the hot path go out by appending text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace exode::server {

using Json = nlohmann::ordered_json;

constexpr int32_t kJsonDepth = 128;

// Errors (syntax with its place, nesting deeper than kJsonDepth, strings that are not UTF-8) are
// kInvalidArgument. Never throws.
Result<Json> parse_json(std::string_view text);
std::string dump_json(const Json& value);  // compact; bytes that are not UTF-8 become U+FFFD

// Appends `text`, which must be UTF-8, as a quoted JSON string.
void append_json_string(std::string* out, std::string_view text);

}  // namespace exode::server
