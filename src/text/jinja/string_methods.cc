#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/methods.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/unicode_text.h"

namespace exode::text::jinja {
namespace {

using Names1 = std::array<std::string_view, 1>;
using Names2 = std::array<std::string_view, 2>;
using Names3 = std::array<std::string_view, 3>;

// An optional separator or set of characters: none counts as not given.
const Str* optional_str(const Value& value, std::string_view who) {
  if (value.is(Kind::kAbsent) || value.is(Kind::kNone)) return nullptr;
  return &require_str(value, who);
}

Value split(Runtime& rt, const Value& self, const Args& args) {
  const auto [separator, limit] = take_args(args, "split()", Names2{"sep", "maxsplit"}, 0);
  const Int most = limit.is(Kind::kAbsent) ? -1 : require_int(limit, "split()");
  return Value::of(split_text(rt, *self.str, optional_str(separator, "split()"), most));
}

Value rsplit(Runtime& rt, const Value& self, const Args& args) {
  const auto [separator, limit] = take_args(args, "rsplit()", Names2{"sep", "maxsplit"}, 0);
  const Int most = limit.is(Kind::kAbsent) ? -1 : require_int(limit, "rsplit()");
  return Value::of(split_text_right(rt, *self.str, optional_str(separator, "rsplit()"), most));
}

Value splitlines(Runtime& rt, const Value& self, const Args& args) {
  const auto [keep] = take_args(args, "splitlines()", Names1{"keepends"}, 0);
  return Value::of(split_lines(rt, *self.str, truthy(keep)));
}

Value strip_sides(Runtime& rt, const Value& self, const Args& args, Sides sides) {
  const auto [characters] = take_args(args, "strip()", Names1{"chars"}, 0);
  return Value::of(strip_text(rt, *self.str, optional_str(characters, "strip()"), sides));
}
Value strip(Runtime& rt, const Value& self, const Args& args) {
  return strip_sides(rt, self, args, Sides::kBoth);
}
Value lstrip(Runtime& rt, const Value& self, const Args& args) {
  return strip_sides(rt, self, args, Sides::kLeft);
}
Value rstrip(Runtime& rt, const Value& self, const Args& args) {
  return strip_sides(rt, self, args, Sides::kRight);
}

// The part of the text that [start, end) in code points selects.
std::string_view window(const Str& str, const Value& start, const Value& end) {
  const auto at = [&](const Value& bound, int64_t missing) {
    if (bound.is(Kind::kAbsent) || bound.is(Kind::kNone)) return missing;
    Int value = require_int(bound, "a string method");
    if (value < 0) value = std::max(Int{0}, value + str.length());
    return static_cast<int64_t>(std::min(value, Int{str.length() + 1}));
  };
  const int64_t first = at(start, 0);
  const int64_t last = std::min(at(end, str.length()), str.length());
  if (first > last) return {};
  const size_t begin = skip_code_points(str.text, 0, first);
  return str.text.substr(begin, skip_code_points(str.text, begin, last - first) - begin);
}

Value affix(Runtime& rt, const Value& self, const Args& args,
            bool (*matches)(std::string_view, std::string_view)) {
  const auto [what, start, end] =
      take_args(args, "startswith()/endswith()", Names3{"prefix", "start", "end"}, 1);
  const std::string_view text = window(*self.str, start, end);
  rt.charge_items(1);
  if (!what.is(Kind::kList) || what.list->form != Form::kTuple) {
    return Value::of(matches(text, require_str(what, "startswith()/endswith()").text));
  }
  for (const Value& option : what.list->items) {
    if (matches(text, require_str(option, "startswith()/endswith()").text)) return Value::of(true);
  }
  return Value::of(false);
}
Value startswith(Runtime& rt, const Value& self, const Args& args) {
  return affix(rt, self, args,
               [](std::string_view s, std::string_view p) { return s.starts_with(p); });
}
Value endswith(Runtime& rt, const Value& self, const Args& args) {
  return affix(rt, self, args,
               [](std::string_view s, std::string_view p) { return s.ends_with(p); });
}

Value replace(Runtime& rt, const Value& self, const Args& args) {
  const auto [from, to, count] = take_args(args, "replace()", Names3{"old", "new", "count"}, 2);
  const Int most = count.is(Kind::kAbsent) ? -1 : require_int(count, "replace()");
  return Value::of(replace_text(rt, *self.str, require_str(from, "replace()"),
                                require_str(to, "replace()"), most));
}

Value join(Runtime& rt, const Value& self, const Args& args) {
  const auto [items] = take_args(args, "join()", Names1{"iterable"}, 1);
  TextBuilder out;
  bool first = true;
  for (const Value& item : iterate(rt, items)) {
    if (!first) out.append(*self.str);
    first = false;
    out.append(require_str(item, "join()"));
  }
  return Value::of(out.finish(rt));
}

int64_t find_from(Runtime& rt, const Value& self, const Args& args, bool last) {
  const auto [what, start, end] = take_args(args, "find()", Names3{"sub", "start", "end"}, 1);
  const std::string_view text = window(*self.str, start, end);
  rt.charge_bytes(self.text().size());
  const std::string_view needle = require_str(what, "find()").text;
  const size_t at = text.data() == nullptr ? std::string_view::npos
                    : last                 ? text.rfind(needle)
                                           : text.find(needle);
  if (at == std::string_view::npos) return -1;
  const auto begin = static_cast<size_t>(text.data() - self.text().data()) + at;
  return Str{self.text().substr(0, begin)}.length();
}
Value find(Runtime& rt, const Value& self, const Args& args) {
  return Value::of(find_from(rt, self, args, false));
}
Value rfind(Runtime& rt, const Value& self, const Args& args) {
  return Value::of(find_from(rt, self, args, true));
}
Value index(Runtime& rt, const Value& self, const Args& args) {
  const int64_t at = find_from(rt, self, args, false);
  if (at < 0) fail("index(): substring not found");
  return Value::of(at);
}
Value rindex(Runtime& rt, const Value& self, const Args& args) {
  const int64_t at = find_from(rt, self, args, true);
  if (at < 0) fail("rindex(): substring not found");
  return Value::of(at);
}

Value count(Runtime& rt, const Value& self, const Args& args) {
  const auto [what, start, end] = take_args(args, "count()", Names3{"sub", "start", "end"}, 1);
  const std::string_view text = window(*self.str, start, end);
  const std::string_view needle = require_str(what, "count()").text;
  rt.charge_bytes(text.size());
  if (needle.empty()) return Value::of(Str{text}.length() + 1);
  int64_t found = 0;
  for (size_t at = text.find(needle); at != std::string_view::npos;
       at = text.find(needle, at + needle.size())) {
    ++found;
  }
  return Value::of(found);
}

Value removeprefix(Runtime& rt, const Value& self, const Args& args) {
  const auto [what] = take_args(args, "removeprefix()", Names1{"prefix"}, 1);
  const std::string_view prefix = require_str(what, "removeprefix()").text;
  const size_t size = self.text().size();
  return Value::of(
      substr(rt, *self.str, self.text().starts_with(prefix) ? prefix.size() : 0, size));
}
Value removesuffix(Runtime& rt, const Value& self, const Args& args) {
  const auto [what] = take_args(args, "removesuffix()", Names1{"suffix"}, 1);
  const std::string_view suffix = require_str(what, "removesuffix()").text;
  const size_t cut = self.text().ends_with(suffix) ? suffix.size() : 0;
  return Value::of(substr(rt, *self.str, 0, self.text().size() - cut));
}

template <std::string (*kChange)(std::string_view)>
Value change_case(Runtime& rt, const Value& self, const Args& args) {
  bind_none(args, "a case method");
  rt.charge_bytes(self.text().size());
  return Value::of(rt.copy(kChange(self.text()), !self.str->has_data()));
}

template <bool (*kMatches)(uint32_t)>
Value all_characters(Runtime& rt, const Value& self, const Args& args) {
  bind_none(args, "a string test");
  rt.charge_bytes(self.text().size());
  for (size_t at = 0; at < self.text().size();) {
    if (!kMatches(take_code_point(self.text(), at))) return Value::of(false);
  }
  return Value::of(!self.text().empty());
}

// Python: at least one cased character, none of the other case.
template <bool (*kWanted)(uint32_t), bool (*kOther)(uint32_t)>
Value all_cased(Runtime& rt, const Value& self, const Args& args) {
  bind_none(args, "a string test");
  rt.charge_bytes(self.text().size());
  bool found = false;
  for (size_t at = 0; at < self.text().size();) {
    const uint32_t c = take_code_point(self.text(), at);
    if (kOther(c)) return Value::of(false);
    found = found || kWanted(c);
  }
  return Value::of(found);
}

bool is_alnum(uint32_t c) { return is_alpha(c) || is_numeric(c); }
bool is_ascii_character(uint32_t c) { return c < 0x80; }

Value format(Runtime& rt, const Value& self, const Args& args) {
  return Value::of(format_text(rt, *self.str, args));
}

constexpr MethodEntry kStringMethods[] = {
    {"capitalize", change_case<to_capitalized>},
    {"casefold", nullptr},
    {"center", nullptr},
    {"count", count},
    {"encode", nullptr},
    {"endswith", endswith},
    {"expandtabs", nullptr},
    {"find", find},
    {"format", format},
    {"format_map", nullptr},
    {"index", index},
    {"isalnum", all_characters<is_alnum>},
    {"isalpha", all_characters<is_alpha>},
    {"isascii", all_characters<is_ascii_character>},
    {"isdecimal", nullptr},
    {"isdigit", all_characters<is_digit_character>},
    {"isidentifier", nullptr},
    {"islower", all_cased<is_lower, is_upper>},
    {"isnumeric", all_characters<is_numeric>},
    {"isprintable", nullptr},
    {"isspace", all_characters<is_space>},
    {"istitle", nullptr},
    {"isupper", all_cased<is_upper, is_lower>},
    {"join", join},
    {"ljust", nullptr},
    {"lower", change_case<to_lower>},
    {"lstrip", lstrip},
    {"maketrans", nullptr},
    {"partition", nullptr},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"replace", replace},
    {"rfind", rfind},
    {"rindex", rindex},
    {"rjust", nullptr},
    {"rpartition", nullptr},
    {"rsplit", rsplit},
    {"rstrip", rstrip},
    {"split", split},
    {"splitlines", splitlines},
    {"startswith", startswith},
    {"strip", strip},
    {"swapcase", nullptr},
    {"title", change_case<to_title>},
    {"translate", nullptr},
    {"upper", change_case<to_upper>},
    {"zfill", nullptr},
};

}  // namespace

std::span<const MethodEntry> string_methods() { return kStringMethods; }

}  // namespace exode::text::jinja
