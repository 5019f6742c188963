// Between JSON and values: the context of a render, tojson as Hugging Face defines it, from_json.
#pragma once

#include <nlohmann/json.hpp>

#include "text/jinja/runtime.h"

namespace exode::text::jinja {

// Strings view into `json`, which must outlive the render, and are data.
Value from_context(Runtime& runtime, const nlohmann::ordered_json& json);
Value parse_json(Runtime& runtime, const Str& text);

// json.dumps. `indent` null: one line.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  const Str* indent = nullptr;
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};
const Str* to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace exode::text::jinja
