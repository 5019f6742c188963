// Filters of strings and numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/json.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/unicode_text.h"

namespace exode::text::jinja {
namespace {

using Names1 = std::array<std::string_view, 1>;
using Names2 = std::array<std::string_view, 2>;
using Names3 = std::array<std::string_view, 3>;
using Names4 = std::array<std::string_view, 4>;

Value default_value(Runtime& rt, const Value& input, const Args& args) {
  const auto [fallback, boolean] =
      take_args(args, "default", Names2{"default_value", "boolean"}, 0);
  const bool replace = input.is(Kind::kUndefined) || (truthy(boolean) && !truthy(input));
  if (!replace) return input;
  return fallback.is(Kind::kAbsent) ? Value::of(rt.view("", true)) : fallback;
}

Value string(Runtime& rt, const Value& input, const Args& args) {
  bind_none(args, "string");
  return Value::of(to_str(rt, input));
}

// Nothing is escaped on output; but + with a safe string escapes the other operand.
Value safe(Runtime& rt, const Value& input, const Args& args) {
  bind_none(args, "safe");
  return Value::of(make_safe(rt, *to_str(rt, input)));
}

Value trim_filter(Runtime& rt, const Value& input, const Args& args) {
  const auto [characters] = take_args(args, "trim", Names1{"chars"}, 0);
  const bool given = !characters.is(Kind::kAbsent) && !characters.is(Kind::kNone);
  const Str* set = given ? &require_str(characters, "trim") : nullptr;
  return Value::of(strip_text(rt, *to_str(rt, input), set, Sides::kBoth));
}

template <std::string (*kChange)(std::string_view)>
Value change_case(Runtime& rt, const Value& input, const Args& args) {
  bind_none(args, "a case filter");
  const Str* text = to_str(rt, input);
  rt.charge_bytes(text->text.size());
  return Value::of(rt.copy(kChange(text->text), !text->has_data()));
}

// Unlike str.title, Jinja's filter starts words only after white space, hyphens and brackets.
std::string title_words(std::string_view text) {
  std::string out;
  size_t at = 0;
  const auto separates = [](uint32_t c) {
    return is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                           std::string_view::npos);
  };
  while (at < text.size()) {
    size_t end = at;
    if (separates(take_code_point(text, end))) {
      out += text.substr(at, end - at);
      at = end;
      continue;
    }
    out += to_upper(text.substr(at, end - at));
    const size_t rest = end;
    size_t next = end;
    while (next < text.size() && !separates(take_code_point(text, next))) end = next;
    out += to_lower(text.substr(rest, end - rest));
    at = end;
  }
  return out;
}

Value replace(Runtime& rt, const Value& input, const Args& args) {
  const auto [from, to, count] = take_args(args, "replace", Names3{"old", "new", "count"}, 2);
  const bool limited = !count.is(Kind::kAbsent) && !count.is(Kind::kNone);
  const Int most = limited ? require_int(count, "replace") : -1;
  return Value::of(replace_text(rt, *to_str(rt, input), *to_str(rt, from), *to_str(rt, to), most));
}

Value indent(Runtime& rt, const Value& input, const Args& args) {
  const auto [width, first, blank] =
      take_args(args, "indent", Names3{"width", "first", "blank"}, 0);
  const Str& source = require_str(input, "indent");
  std::string space(4, ' ');
  if (width.is(Kind::kString)) {
    space = width.text();
  } else if (!width.is(Kind::kAbsent)) {
    const Int count = require_int(width, "indent");
    if (count > static_cast<Int>(kOutputBytesMax)) fail("indent: the width is too large");
    space = std::string(static_cast<size_t>(std::max(count, Int{0})), ' ');
  }
  const bool literal_space = !width.is(Kind::kString) || !width.str->has_data();
  const Str* ended = concat(rt, source, *rt.view("\n", true));
  TextBuilder out;
  bool is_first = true;
  for (const Value& line : split_lines(rt, *ended, false)->items) {
    if (!is_first) out.append("\n", true);
    const bool indented = is_first ? truthy(first) : truthy(blank) || !line.text().empty();
    if (indented) out.append(space, literal_space);
    out.append(*line.str);
    is_first = false;
  }
  return Value::of(out.finish(rt));
}

Value format(Runtime& rt, const Value& input, const Args& args) {
  if (!args.named.empty()) fail("format: named arguments are not supported");
  List* values = rt.list(Form::kTuple);
  values->items.assign(args.positional.begin(), args.positional.end());
  return Value::of(format_percent(rt, *to_str(rt, input), Value::of(values)));
}

const Str* json_indent(Runtime& rt, const Value& indent) {
  if (indent.is(Kind::kAbsent) || indent.is(Kind::kNone)) return nullptr;
  if (indent.is(Kind::kString)) return indent.str;
  const Int width = std::max(Int{0}, require_int(indent, "tojson"));
  if (width > 1000) fail("tojson: the indent is too large");
  return rt.copy(std::string(static_cast<size_t>(width), ' '), true);
}

Value tojson(Runtime& rt, const Value& input, const Args& args) {
  const auto [ascii, indent, separators, sort_keys] =
      take_args(args, "tojson", Names4{"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style{.ensure_ascii = truthy(ascii), .sort_keys = truthy(sort_keys)};
  style.indent = json_indent(rt, indent);
  if (style.indent != nullptr) style.item_separator = ",";
  if (!separators.is(Kind::kAbsent) && !separators.is(Kind::kNone)) {
    const auto pair = iterate(rt, separators);
    if (pair.size() != 2) fail("tojson: separators must be two strings");
    style.item_separator = require_str(pair[0], "tojson").text;
    style.key_separator = require_str(pair[1], "tojson").text;
  }
  return Value::of(to_json(rt, input, style));
}

Value from_json(Runtime& rt, const Value& input, const Args& args) {
  bind_none(args, "from_json");
  return parse_json(rt, require_str(input, "from_json"));
}

// The text of a Python number: no white space around, single underscores between digits removed.
bool number_text(std::string_view text, std::string& out) {
  text = trim(text);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto alnum = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return false;
  }
  return !out.empty();
}

bool parse_int(std::string_view source, Int base, Int& out) {
  std::string text;
  if (!number_text(source, text)) return false;
  size_t at = 0;
  const bool negative = text[0] == '-';
  if (negative || text[0] == '+') ++at;
  if (at + 2 < text.size() && text[at] == '0') {
    const char prefix = static_cast<char>(text[at + 1] | 0x20);
    const Int named = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      base = named;
      at += 2;
    }
  }
  if (base == 0) base = 10;
  if (at == text.size()) return false;
  out = 0;
  for (; at < text.size(); ++at) {
    const int lower = text[at] | 0x20;
    const int digit = text[at] >= '0' && text[at] <= '9' ? text[at] - '0'
                      : lower >= 'a' && lower <= 'z'     ? lower - 'a' + 10
                                                         : 99;
    if (digit >= base) return false;
    if (__builtin_mul_overflow(out, base, &out) || __builtin_add_overflow(out, Int{digit}, &out)) {
      fail("int: the number is too large");
    }
  }
  if (negative) out = -out;
  return true;
}

bool parse_real(std::string_view source, double& out) {
  std::string text;
  if (!number_text(source, text)) return false;
  // strtod also takes hexadecimal and nan(...), which Python does not.
  if (text.find_first_of("xXpP(") != std::string::npos) return false;
  char* end = nullptr;
  out = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size();
}

bool real_to_int(double value, Int& out) {
  if (!std::isfinite(value) || std::abs(value) > 1e38) return false;
  out = static_cast<Int>(value);
  return true;
}

Value int_filter(Runtime&, const Value& input, const Args& args) {
  const auto [fallback, base] = take_args(args, "int", Names2{"default", "base"}, 0);
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  const Value otherwise = fallback.is(Kind::kAbsent) ? Value::of(Int{0}) : fallback;
  Int out = 0;
  if (input.is_integral()) return Value::of(input.as_int());
  if (input.is(Kind::kFloat)) {
    if (std::isinf(input.real)) fail("int: infinity is not an integer");
    return real_to_int(input.real, out) ? Value::of(out) : otherwise;
  }
  if (!input.is(Kind::kString)) return otherwise;
  const Int radix = base.is(Kind::kAbsent) ? 10 : require_int(base, "int");
  if (parse_int(input.text(), radix, out)) return Value::of(out);
  double real = 0;
  return parse_real(input.text(), real) && real_to_int(real, out) ? Value::of(out) : otherwise;
}

Value float_filter(Runtime&, const Value& input, const Args& args) {
  const auto [fallback] = take_args(args, "float", Names1{"default"}, 0);
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  double out = 0;
  if (input.is_number()) return Value::of(input.as_real());
  if (input.is(Kind::kString) && parse_real(input.text(), out)) return Value::of(out);
  return fallback.is(Kind::kAbsent) ? Value::of(0.0) : fallback;
}

Value abs_filter(Runtime&, const Value& input, const Args& args) {
  bind_none(args, "abs");
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  if (input.is(Kind::kFloat)) return Value::of(std::abs(input.real));
  const Int value = require_int(input, "abs");
  return Value::of(value < 0 ? -value : value);
}

Value round_filter(Runtime&, const Value& input, const Args& args) {
  const auto [precision, method] = take_args(args, "round", Names2{"precision", "method"}, 0);
  const Int digits = precision.is(Kind::kAbsent) ? 0 : require_int(precision, "round");
  const std::string_view how =
      method.is(Kind::kAbsent) ? "common" : require_str(method, "round").text;
  if (digits < 0 || digits > 15) fail("round: the precision must be 0 to 15");
  if (!input.is_number()) fail(fmt::format("round needs a number, not {}", type_name(input)));
  if (how == "common") {
    if (!input.is(Kind::kFloat)) return Value::of(input.as_int());
    return Value::of(
        std::strtod(fmt::format("{:.{}f}", input.real, static_cast<int>(digits)).c_str(), nullptr));
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (how == "ceil") return Value::of(std::ceil(input.as_real() * scale) / scale);
  if (how == "floor") return Value::of(std::floor(input.as_real() * scale) / scale);
  fail("round: the method must be common, ceil or floor");
}

constexpr Filter kFilters[] = {
    {"abs", abs_filter},
    {"capitalize", change_case<to_capitalized>},
    {"d", default_value},
    {"default", default_value},
    {"float", float_filter},
    {"format", format},
    {"from_json", from_json},
    {"indent", indent},
    {"int", int_filter},
    {"lower", change_case<to_lower>},
    {"replace", replace},
    {"round", round_filter},
    {"safe", safe},
    {"string", string},
    {"title", change_case<title_words>},
    {"tojson", tojson},
    {"trim", trim_filter},
    {"upper", change_case<to_upper>},
};

}  // namespace

std::span<const Filter> text_filters() { return kFilters; }

const Filter* find_filter(std::string_view name) {
  for (const std::span<const Filter> filters : {text_filters(), sequence_filters()}) {
    for (const Filter& filter : filters) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace exode::text::jinja
