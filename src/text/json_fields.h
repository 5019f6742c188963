// Typed access to fields of a parsed tokenizer file. Messages name the field; the caller puts the
// file's name in front.
#pragma once

#include <fmt/format.h>
#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace exode::text::fields {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// Beyond any real vocabulary, and few enough that a wild id does not fill the memory.
inline constexpr int64_t kIdMax = (1 << 21) - 1;

// Null counts as absent.
inline std::optional<element> find(element object, std::string_view key) {
  element value;
  if (object[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

inline Result<std::string_view> text(element object, std::string_view key,
                                     std::string_view fallback) {
  const std::optional<element> value = find(object, key);
  std::string_view text = fallback;
  if (value && value->get(text) != simdjson::SUCCESS) {
    return invalid(fmt::format("'{}' is not a string", key));
  }
  return text;
}

inline Result<bool> flag(element object, std::string_view key, bool fallback) {
  const std::optional<element> value = find(object, key);
  bool flag = fallback;
  if (value && value->get(flag) != simdjson::SUCCESS) {
    return invalid(fmt::format("'{}' is not true or false", key));
  }
  return flag;
}

inline Result<array> list(element object, std::string_view key) {
  array value;
  if (object[key].get(value) != simdjson::SUCCESS) {
    return invalid(fmt::format("'{}' is missing or not a list", key));
  }
  return value;
}

// `what` has the id.
inline Result<TokenId> id(std::optional<element> value, std::string_view what) {
  int64_t id = -1;
  if (!value || value->get(id) != simdjson::SUCCESS || id < 0 || id > kIdMax) {
    return invalid(fmt::format("the id of {} is not an integer in 0…{}", what, kIdMax));
  }
  return static_cast<TokenId>(id);
}

}  // namespace exode::text::fields
