// Filters of lists and mappings.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/arithmetic.h"
#include "text/jinja/filters.h"
#include "text/jinja/tests.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/unicode_text.h"

namespace exode::text::jinja {
namespace {

using Names2 = std::array<std::string_view, 2>;
using Names3 = std::array<std::string_view, 3>;

bool given(const Value& value) { return !value.is(Kind::kAbsent) && !value.is(Kind::kNone); }

Value length(Runtime&, const Value& input, const Args& args) {
  bind_none(args, "length");
  return Value::of(length_of(input));
}

Value join(Runtime& rt, const Value& input, const Args& args) {
  const auto [separator, attribute] = take_args(args, "join", Names2{"d", "attribute"}, 0);
  const Str* between = separator.is(Kind::kAbsent) ? rt.view("", true) : to_str(rt, separator);
  TextBuilder out;
  bool first = true;
  for (const Value& item : iterate(rt, input)) {
    if (!first) out.append(*between);
    first = false;
    out.append(*to_str(rt, given(attribute) ? get_path(rt, item, attribute) : item));
  }
  return Value::of(out.finish(rt));
}

Value items(Runtime& rt, const Value& input, const Args& args) {
  bind_none(args, "items");
  List* out = rt.list(Form::kGenerator);
  if (input.is(Kind::kUndefined)) return Value::of(out);
  if (!input.is(Kind::kDict)) {
    fail(fmt::format("items needs a mapping, not {}", type_name(input)));
  }
  for (const Dict::Entry& entry : input.dict->entries) {
    out->items.push_back(rt.pair(entry.key, entry.value));
  }
  rt.charge_items(out->items.size());
  return Value::of(out);
}

Value list(Runtime& rt, const Value& input, const Args& args) {
  bind_none(args, "list");
  const std::span<const Value> source = iterate(rt, input);
  List* out = rt.list();
  out->items.assign(source.begin(), source.end());
  return Value::of(out);
}

// Keys compare without case unless asked otherwise.
Value sort_key(Runtime& rt, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is(Kind::kString)) return value;
  return Value::of(rt.copy(to_lower(value.text()), true));
}

// One key for each comma-separated attribute.
List* sort_keys(Runtime& rt, const Value& item, const Value& attribute, bool case_sensitive) {
  List* keys = rt.list();
  if (!given(attribute)) {
    keys->items.push_back(sort_key(rt, item, case_sensitive));
  } else if (!attribute.is(Kind::kString)) {
    keys->items.push_back(sort_key(rt, get_path(rt, item, attribute), case_sensitive));
  } else {
    for (const Value& path : split_text(rt, *attribute.str, rt.view(",", true), -1)->items) {
      keys->items.push_back(sort_key(rt, get_path(rt, item, path), case_sensitive));
    }
  }
  return keys;
}

struct Keyed {
  Value key;
  Value value;
};

void sort_stably(Runtime& rt, std::vector<Keyed>& items, bool reverse) {
  // Merge sort: unlike std::sort it stays inside the range when the order is inconsistent (NaN).
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    const int order = compare(rt, a.key, b.key);
    return reverse ? order > 0 : order < 0;
  });
}

Value sort(Runtime& rt, const Value& input, const Args& args) {
  const auto [reverse, case_sensitive, attribute] =
      take_args(args, "sort", Names3{"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<Keyed> keyed;
  for (const Value& item : iterate(rt, input)) {
    keyed.push_back({Value::of(sort_keys(rt, item, attribute, truthy(case_sensitive))), item});
  }
  sort_stably(rt, keyed, truthy(reverse));
  List* out = rt.list();
  for (const Keyed& k : keyed) out->items.push_back(k.value);
  return Value::of(out);
}

Value dictsort(Runtime& rt, const Value& input, const Args& args) {
  const auto [case_sensitive, by, reverse] =
      take_args(args, "dictsort", Names3{"case_sensitive", "by", "reverse"}, 0);
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  if (!input.is(Kind::kDict)) {
    fail(fmt::format("dictsort needs a mapping, not {}", type_name(input)));
  }
  const std::string_view order = by.is(Kind::kAbsent) ? "key" : require_str(by, "dictsort").text;
  if (order != "key" && order != "value") fail("dictsort: by must be key or value");
  std::vector<Keyed> keyed;
  for (const Dict::Entry& entry : input.dict->entries) {
    const Value& key = order == "key" ? entry.key : entry.value;
    keyed.push_back({sort_key(rt, key, truthy(case_sensitive)), rt.pair(entry.key, entry.value)});
  }
  sort_stably(rt, keyed, truthy(reverse));
  List* out = rt.list();
  for (const Keyed& k : keyed) out->items.push_back(k.value);
  return Value::of(out);
}

Value extreme(Runtime& rt, const Value& input, const Args& args, int wanted) {
  const auto [case_sensitive, attribute] =
      take_args(args, "min/max", Names2{"case_sensitive", "attribute"}, 0);
  Value best = Value::undefined(nullptr);
  Value best_key;
  bool first = true;
  for (const Value& item : iterate(rt, input)) {
    const Value source = given(attribute) ? get_path(rt, item, attribute) : item;
    const Value key = sort_key(rt, source, truthy(case_sensitive));
    if (!first && compare(rt, key, best_key) != wanted) continue;
    best = item;
    best_key = key;
    first = false;
  }
  return best;
}
Value min(Runtime& rt, const Value& input, const Args& args) {
  return extreme(rt, input, args, -1);
}
Value max(Runtime& rt, const Value& input, const Args& args) { return extreme(rt, input, args, 1); }

Value unique(Runtime& rt, const Value& input, const Args& args) {
  const auto [case_sensitive, attribute] =
      take_args(args, "unique", Names2{"case_sensitive", "attribute"}, 0);
  Dict* seen = rt.dict();
  List* out = rt.list(Form::kGenerator);
  for (const Value& item : iterate(rt, input)) {
    const Value source = given(attribute) ? get_path(rt, item, attribute) : item;
    const Value key = sort_key(rt, source, truthy(case_sensitive));
    if (seen->find(key) != nullptr) continue;
    seen->set(key, item);
    out->items.push_back(item);
  }
  return Value::of(out);
}

Value first(Runtime& rt, const Value& input, const Args& args) {
  bind_none(args, "first");
  if (input.is(Kind::kList) && input.list->form != Form::kGenerator) {
    return input.list->items.empty() ? Value::undefined(nullptr) : input.list->items.front();
  }
  const std::span<const Value> source = iterate(rt, input);
  return source.empty() ? Value::undefined(nullptr) : source.front();
}

Value last(Runtime& rt, const Value& input, const Args& args) {
  bind_none(args, "last");
  if (input.is(Kind::kList) && input.list->form == Form::kGenerator) {
    fail("last needs a sequence, not generator");
  }
  const std::span<const Value> source = iterate(rt, input);
  return source.empty() ? Value::undefined(nullptr) : source.back();
}

Value reverse(Runtime& rt, const Value& input, const Args& args) {
  bind_none(args, "reverse");
  if (input.is(Kind::kString)) {
    const Value step[3] = {Value::none(), Value::none(), Value::of(Int{-1})};
    return get_slice(rt, input, step);
  }
  const std::span<const Value> source = iterate(rt, input);
  List* out = rt.list(Form::kGenerator);
  out->items.assign(source.rbegin(), source.rend());
  return Value::of(out);
}

Value sum(Runtime& rt, const Value& input, const Args& args) {
  const auto [attribute, start] = take_args(args, "sum", Names2{"attribute", "start"}, 0);
  Value total = start.is(Kind::kAbsent) ? Value::of(Int{0}) : start;
  if (total.is(Kind::kString)) fail("sum: strings are joined, not summed");
  for (const Value& item : iterate(rt, input)) {
    total = calculate(rt, Op::kAdd, total, given(attribute) ? get_path(rt, item, attribute) : item);
  }
  return total;
}

// select, reject and map take any false value, none too, for an empty list.
std::span<const Value> iterate_lenient(Runtime& rt, const Value& input) {
  return truthy(input) ? iterate(rt, input) : std::span<const Value>();
}

Args rest_of(const Args& args, size_t from) {
  Args rest;
  rest.named = args.named;
  for (size_t i = from; i < args.positional.size(); ++i)
    rest.positional.push_back(args.positional[i]);
  return rest;
}

// select, reject, selectattr, rejectattr: keep the items for which the test gives `wanted`.
Value keep(Runtime& rt, const Value& input, const Args& args, bool by_attribute, bool wanted) {
  const std::string_view who = by_attribute ? "selectattr/rejectattr" : "select/reject";
  const size_t at = by_attribute ? 1 : 0;
  if (args.positional.size() < at) fail(fmt::format("{} needs an attribute", who));
  const Test* test = nullptr;
  if (args.positional.size() > at) {
    const std::string_view name = require_str(args.positional[at], who).text;
    test = find_test(name);
    if (test == nullptr) fail(fmt::format("{}: there is no test '{}'", who, name));
  }
  const Args rest = rest_of(args, at + 1);
  List* out = rt.list(Form::kGenerator);
  for (const Value& item : iterate_lenient(rt, input)) {
    rt.charge(1);
    const Value value = by_attribute ? get_path(rt, item, args.positional[0]) : item;
    if ((test == nullptr ? truthy(value) : test->call(rt, value, rest)) == wanted) {
      out->items.push_back(item);
    }
  }
  return Value::of(out);
}
Value select(Runtime& rt, const Value& v, const Args& args) {
  return keep(rt, v, args, false, true);
}
Value reject(Runtime& rt, const Value& v, const Args& args) {
  return keep(rt, v, args, false, false);
}
Value selectattr(Runtime& rt, const Value& v, const Args& args) {
  return keep(rt, v, args, true, true);
}
Value rejectattr(Runtime& rt, const Value& v, const Args& args) {
  return keep(rt, v, args, true, false);
}

Value map_attribute(Runtime& rt, const Value& input, const Args& args) {
  const auto [attribute, fallback] = take_args(args, "map", Names2{"attribute", "default"}, 1);
  List* out = rt.list(Form::kGenerator);
  for (const Value& item : iterate_lenient(rt, input)) {
    rt.charge(1);
    const Value value = get_path(rt, item, attribute);
    const bool replace = value.is(Kind::kUndefined) && !fallback.is(Kind::kAbsent);
    out->items.push_back(replace ? fallback : value);
  }
  return Value::of(out);
}

Value map(Runtime& rt, const Value& input, const Args& args) {
  if (args.positional.empty()) return map_attribute(rt, input, args);
  const std::string_view name = require_str(args.positional[0], "map").text;
  const Filter* filter = find_filter(name);
  if (filter == nullptr) fail(fmt::format("map: there is no filter '{}'", name));
  const Args rest = rest_of(args, 1);
  List* out = rt.list(Form::kGenerator);
  // A filter may be map itself: the nesting of its names bounds the recursion.
  for (const Value& item : iterate_lenient(rt, input)) {
    rt.charge(1);
    out->items.push_back(filter->call(rt, item, rest));
  }
  return Value::of(out);
}

constexpr Filter kFilters[] = {
    {"count", length},
    {"dictsort", dictsort},
    {"first", first},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"map", map},
    {"max", max},
    {"min", min},
    {"reject", reject},
    {"rejectattr", rejectattr},
    {"reverse", reverse},
    {"select", select},
    {"selectattr", selectattr},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const Filter> sequence_filters() { return kFilters; }

}  // namespace exode::text::jinja
