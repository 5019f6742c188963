#include "text/jinja/text_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "text/jinja/unicode_text.h"

namespace exode::text::jinja {
namespace {

// Whether the code point at `at` is one to strip; moves past it.
bool strips(std::string_view text, size_t& at, const Str* characters) {
  const size_t start = at;
  const uint32_t c = take_code_point(text, at);
  if (characters == nullptr) return is_space(c);
  return characters->text.find(text.substr(start, at - start)) != std::string_view::npos;
}

size_t last_code_point(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return start;
}

Value piece(Runtime& runtime, const Str& str, std::string_view text) {
  return Value::of(part(runtime, str, text));
}

void require_separator(const Str* separator) {
  if (separator != nullptr && separator->text.empty()) fail("split(): the separator is empty");
}

List* split_space(Runtime& runtime, const Str& str, Int most) {
  List* out = runtime.list();
  std::string_view rest = trim_left(str.text);
  while (!rest.empty()) {
    if (most == 0) {
      out->items.push_back(piece(runtime, str, rest));
      return out;
    }
    size_t at = 0;
    size_t end = 0;
    while (end < rest.size() && !is_space(take_code_point(rest, end))) at = end;
    out->items.push_back(piece(runtime, str, rest.substr(0, at)));
    rest = trim_left(rest.substr(at));
    --most;
  }
  return out;
}

List* split_space_right(Runtime& runtime, const Str& str, Int most) {
  List* out = runtime.list();
  std::string_view rest = trim_right(str.text);
  while (!rest.empty()) {
    if (most == 0) {
      out->items.push_back(piece(runtime, str, rest));
      break;
    }
    size_t begin = rest.size();
    while (begin > 0) {
      const size_t previous = last_code_point(rest.substr(0, begin));
      size_t at = previous;
      if (is_space(take_code_point(rest, at))) break;
      begin = previous;
    }
    out->items.push_back(piece(runtime, str, rest.substr(begin)));
    rest = trim_right(rest.substr(0, begin));
    --most;
  }
  std::reverse(out->items.begin(), out->items.end());
  return out;
}

}  // namespace

const Str* strip_text(Runtime& runtime, const Str& str, const Str* characters, Sides sides) {
  std::string_view text = str.text;
  if ((static_cast<int>(sides) & static_cast<int>(Sides::kLeft)) != 0) {
    size_t at = 0;
    size_t end = 0;
    while (end < text.size() && strips(text, end, characters)) at = end;
    text.remove_prefix(at);
  }
  if ((static_cast<int>(sides) & static_cast<int>(Sides::kRight)) != 0) {
    while (!text.empty()) {
      const size_t start = last_code_point(text);
      size_t at = start;
      if (!strips(text, at, characters)) break;
      text = text.substr(0, start);
    }
  }
  runtime.charge_bytes(str.text.size() - text.size());
  return part(runtime, str, text);
}

List* split_text(Runtime& runtime, const Str& str, const Str* separator, Int most) {
  require_separator(separator);
  runtime.charge_bytes(str.text.size());
  if (separator == nullptr) return split_space(runtime, str, most);
  List* out = runtime.list();
  std::string_view rest = str.text;
  for (; most != 0; --most) {
    const size_t at = rest.find(separator->text);
    if (at == std::string_view::npos) break;
    out->items.push_back(piece(runtime, str, rest.substr(0, at)));
    rest.remove_prefix(at + separator->text.size());
  }
  out->items.push_back(piece(runtime, str, rest));
  runtime.charge_items(out->items.size());
  return out;
}

List* split_text_right(Runtime& runtime, const Str& str, const Str* separator, Int most) {
  require_separator(separator);
  runtime.charge_bytes(str.text.size());
  if (separator == nullptr) return split_space_right(runtime, str, most);
  List* out = runtime.list();
  std::string_view rest = str.text;
  for (; most != 0; --most) {
    const size_t at = rest.rfind(separator->text);
    if (at == std::string_view::npos) break;
    out->items.push_back(piece(runtime, str, rest.substr(at + separator->text.size())));
    rest = rest.substr(0, at);
  }
  out->items.push_back(piece(runtime, str, rest));
  std::reverse(out->items.begin(), out->items.end());
  runtime.charge_items(out->items.size());
  return out;
}

List* split_lines(Runtime& runtime, const Str& str, bool keep_ends) {
  const auto ends_line = [](uint32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  runtime.charge_bytes(str.text.size());
  List* out = runtime.list();
  const std::string_view text = str.text;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const uint32_t c = take_code_point(text, at);
    if (!ends_line(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    out->items.push_back(piece(runtime, str, text.substr(start, (keep_ends ? at : end) - start)));
    start = at;
  }
  if (start < text.size()) out->items.push_back(piece(runtime, str, text.substr(start)));
  return out;
}

const Str* replace_text(Runtime& runtime, const Str& str, const Str& from, const Str& to,
                        Int most) {
  runtime.charge_bytes(str.text.size());
  const std::string_view text = str.text;
  std::string out;
  size_t at = 0;
  bool replaced = false;
  const auto guard = [&] {
    if (out.size() > kOutputBytesMax) fail("a string becomes too long");
  };
  if (from.text.empty()) {
    // Between all characters and at both ends.
    for (; most != 0; --most) {
      out += to.text;
      guard();
      replaced = true;
      if (at >= text.size()) break;
      const size_t next = skip_code_points(text, at, 1);
      out += text.substr(at, next - at);
      at = next;
    }
  } else {
    for (; most != 0; --most) {
      const size_t found = text.find(from.text, at);
      if (found == std::string_view::npos) break;
      out += text.substr(at, found - at);
      out += to.text;
      guard();
      replaced = true;
      at = found + from.text.size();
    }
  }
  if (!replaced) return &str;
  if (at < text.size()) out += text.substr(at);
  return runtime.copy(out, !str.has_data() && !to.has_data() && !from.has_data());
}

namespace {

// The value that a replacement field names: "", "0", "name", then ".attr" and "[key]".
class FieldReader {
 public:
  FieldReader(Runtime& runtime, const Args& args) : runtime_(runtime), args_(args) {}

  Value read(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    Value value = argument(field.substr(0, end));
    std::string_view rest = field.substr(end);
    while (!rest.empty()) {
      const bool attribute = rest[0] == '.';
      rest.remove_prefix(1);
      const size_t stop = std::min(rest.find_first_of(attribute ? ".[" : "]"), rest.size());
      if (!attribute && stop == rest.size()) fail("format(): ']' is missing in a field");
      const std::string_view name = rest.substr(0, stop);
      const Str* key = runtime_.copy(name, true);
      const int64_t index = number(name);
      value = attribute ? get_attribute(runtime_, value, *key)
                        : get_item(runtime_, value, index < 0 ? Value::of(key) : Value::of(index));
      if (value.is(Kind::kUndefined)) fail_undefined(value);
      rest.remove_prefix(stop + (attribute ? 0 : 1));
    }
    return value;
  }

 private:
  static int64_t number(std::string_view text) {
    int64_t value = -1;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return !text.empty() && result.ptr == text.data() + text.size() ? value : -1;
  }

  Value argument(std::string_view name) {
    const int64_t index = name.empty() ? next_++ : number(name);
    if (index >= 0) {
      if (index >= static_cast<int64_t>(args_.positional.size())) {
        fail(fmt::format("format(): there is no argument {}", index));
      }
      return args_.positional[static_cast<size_t>(index)];
    }
    for (const Args::Named& named : args_.named) {
      if (named.name == name) return named.value;
    }
    fail(fmt::format("format(): there is no argument '{}'", name));
  }

  Runtime& runtime_;
  const Args& args_;
  int64_t next_ = 0;
};

void append_repr(Runtime& runtime, const Value& value, TextBuilder& out) {
  bool has_data = false;
  const std::string text = repr(runtime, value, has_data);
  out.append(text, !has_data);
}

}  // namespace

const Str* format_text(Runtime& runtime, const Str& str, const Args& args) {
  FieldReader reader(runtime, args);
  TextBuilder out;
  const std::string_view text = str.text;
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.append(*substr(runtime, str, at, brace));
    if (brace == text.size()) break;
    if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
      out.append(*substr(runtime, str, brace, brace + 1));
      at = brace + 2;
      continue;
    }
    const size_t close = text.find('}', brace);
    if (text[brace] == '}' || close == std::string_view::npos) fail("format(): single brace");
    std::string_view field = text.substr(brace + 1, close - brace - 1);
    if (field.find_first_of(":{") != std::string_view::npos) {
      fail("format(): format specifications are not supported");
    }
    char conversion = 's';
    if (const size_t mark = field.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != field.size()) fail("format(): bad conversion");
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    const Value value = reader.read(field);
    if (conversion == 's') {
      out.append(*to_str(runtime, value));
    } else if (conversion == 'r') {
      append_repr(runtime, value, out);
    } else {
      fail("format(): bad conversion");
    }
    at = close + 1;
  }
  return out.finish(runtime);
}

const Str* format_percent(Runtime& runtime, const Str& str, const Value& values) {
  const bool tuple = values.is(Kind::kList) && values.list->form == Form::kTuple;
  const std::span<const Value> items =
      tuple ? std::span<const Value>(values.list->items) : std::span<const Value>(&values, 1);
  TextBuilder out;
  size_t used = 0;
  const std::string_view text = str.text;
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    out.append(*substr(runtime, str, at, percent));
    if (percent == text.size()) break;
    const char kind = percent + 1 < text.size() ? text[percent + 1] : '\0';
    at = percent + 2;
    if (kind == '%') {
      out.append("%", true);
      continue;
    }
    if (used >= items.size()) fail("not enough values for the % formats");
    const Value& value = items[used++];
    if (kind == 's') {
      out.append(*to_str(runtime, value));
    } else if (kind == 'r') {
      append_repr(runtime, value, out);
    } else if ((kind == 'd' || kind == 'i') && value.is_integral()) {
      out.append(format_int(value.as_int()), true);
    } else {
      fail(fmt::format("format '%{}' with {} is not supported", kind, type_name(value)));
    }
  }
  if (used < items.size() && !values.is(Kind::kDict)) fail("too many values for the % formats");
  return out.finish(runtime);
}

}  // namespace exode::text::jinja
