#include "server/json.h"

#include <cstdio>

namespace exode::server {
namespace {

// Before the parser sees the text: it would build the whole tree first.
bool deeper_than(std::string_view text, int32_t limit) {
  int32_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limit) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  if (deeper_than(text, kJsonDepth)) {
    return invalid("The JSON body is nested deeper than " + std::to_string(kJsonDepth) +
                   " levels.");
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& e) {
    return invalid("The body is not valid JSON: error at byte " + std::to_string(e.byte) + ".");
  } catch (const Json::exception&) {
    return invalid("The body is not valid JSON: a number is out of range.");
  }
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append_json_string(std::string* out, std::string_view text) {
  *out += '"';
  size_t plain = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text, plain, i - plain);
    plain = i + 1;
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default: {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
        *out += escape;
      }
    }
  }
  out->append(text, plain, text.size() - plain);
  *out += '"';
}

}  // namespace exode::server
