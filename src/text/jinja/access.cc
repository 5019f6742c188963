// Attributes, keys, indices, slices and iteration.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "text/jinja/loop.h"
#include "text/jinja/methods.h"
#include "text/jinja/runtime.h"
#include "text/jinja/unicode_text.h"

namespace exode::text::jinja {
namespace {

const Value* find_key(const Value& object, const Value& key) { return object.dict->find(key); }

bool hashable(const Value& value) {
  if (value.is(Kind::kDict)) return false;
  if (!value.is(Kind::kList)) return true;
  if (value.list->form != Form::kTuple) return false;
  return std::all_of(value.list->items.begin(), value.list->items.end(), hashable);
}

bool is_indexable(const List& list) {
  return list.form == Form::kList || list.form == Form::kTuple || list.form == Form::kRange;
}

// Python's rule for a bound of a slice: negative counts from the end, then clamped.
int64_t clamp_bound(const Value& bound, int64_t length, int64_t missing, int64_t step) {
  if (bound.is(Kind::kNone)) return missing;
  Int at = require_int(bound, "a slice");
  if (at < 0) at += length;
  const Int low = step < 0 ? -1 : 0;
  const Int high = step < 0 ? length - 1 : length;
  return static_cast<int64_t>(std::clamp(at, low, high));
}

Value loop_attribute(Runtime& runtime, const Value& object, const Str& name) {
  const Loop& loop = *object.loop;
  const auto count = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index);
  const std::string_view n = name.text;
  if (n == "index") return Value::of(index + 1);
  if (n == "index0") return Value::of(index);
  if (n == "first") return Value::of(index == 0);
  if (n == "last") return Value::of(index + 1 == count);
  if (n == "length") return Value::of(count);
  if (n == "revindex") return Value::of(count - index);
  if (n == "revindex0") return Value::of(count - index - 1);
  // Depth counts the levels of recursive loops, which templates cannot have.
  if (n == "depth") return Value::of(int64_t{1});
  if (n == "depth0") return Value::of(int64_t{0});
  if (n == "previtem" && index > 0) return loop.items[loop.index - 1];
  if (n == "nextitem" && index + 1 < count) return loop.items[loop.index + 1];
  return bind_method(runtime, object, name);
}

Value index_string(Runtime& runtime, const Str& str, Int index) {
  const int64_t length = str.length();
  if (index < 0) index += length;
  if (index < 0 || index >= length) return Value::undefined(nullptr);
  const bool ascii = length == static_cast<int64_t>(str.text.size());
  const auto at = static_cast<int64_t>(index);
  runtime.charge_bytes(ascii ? 0 : str.text.size());
  const size_t begin = ascii ? static_cast<size_t>(at) : skip_code_points(str.text, 0, at);
  return Value::of(substr(runtime, str, begin, skip_code_points(str.text, begin, 1)));
}

// undefined when there is no such item.
Value find_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    if (!hashable(key)) return Value::undefined(nullptr);
    if (const Value* value = find_key(object, key)) return *value;
  }
  if (!key.is_integral()) return Value::undefined(nullptr);
  if (object.is(Kind::kString)) return index_string(runtime, *object.str, key.as_int());
  if (object.is(Kind::kList) && is_indexable(*object.list)) {
    const auto& items = object.list->items;
    Int index = key.as_int();
    if (index < 0) index += static_cast<Int>(items.size());
    if (index >= 0 && index < static_cast<Int>(items.size())) {
      return items[static_cast<size_t>(index)];
    }
  }
  return Value::undefined(nullptr);
}

const Str* slice_string(Runtime& runtime, const Str& str, int64_t start, int64_t stop,
                        int64_t step) {
  runtime.charge_bytes(str.text.size());
  if (step == 1) {
    const size_t begin = skip_code_points(str.text, 0, start);
    return substr(runtime, str, begin, skip_code_points(str.text, begin, stop - start));
  }
  std::vector<size_t> offsets;
  for (size_t at = 0; at < str.text.size(); at = skip_code_points(str.text, at, 1)) {
    offsets.push_back(at);
  }
  offsets.push_back(str.text.size());
  TextBuilder out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    const auto at = static_cast<size_t>(i);
    out.append(*substr(runtime, str, offsets[at], offsets[at + 1]));
  }
  return out.finish(runtime);
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, const Str& name) {
  switch (object.kind) {
    case Kind::kUndefined:
      fail_undefined(object);
    case Kind::kLoop:
      return loop_attribute(runtime, object, name);
    case Kind::kNamespace:
      if (const Value* value = object.dict->find(name.text)) return *value;
      return Value::undefined(&name, Kind::kNamespace);
    default:
      break;
  }
  // Python looks for a method first: a tool parameter called "items" is reached as m["items"].
  if (const Value method = bind_method(runtime, object, name); method.is(Kind::kMethod)) {
    return method;
  }
  if (object.is(Kind::kDict)) {
    if (const Value* value = object.dict->find(name.text)) return *value;
  }
  return Value::undefined(&name, object.kind);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (key.is(Kind::kString) && !object.is(Kind::kDict)) {
    return get_attribute(runtime, object, *key.str);
  }
  if (object.is(Kind::kNamespace)) return Value::undefined(nullptr);
  const Value value = find_item(runtime, object, key);
  if (!key.is(Kind::kString) || !value.is(Kind::kUndefined)) return value;
  const Value method = bind_method(runtime, object, *key.str);
  return method.is(Kind::kMethod) ? method : Value::undefined(key.str, object.kind);
}

Value get_slice(Runtime& runtime, const Value& object, std::span<const Value, 3> bounds) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  const bool list = object.is(Kind::kList) && is_indexable(*object.list);
  if (!list && !object.is(Kind::kString)) return Value::undefined(nullptr);
  const Int wide_step = bounds[2].is(Kind::kNone) ? 1 : require_int(bounds[2], "a slice");
  if (wide_step == 0) fail("a slice cannot have step 0");
  const Int limit = Int{1} << 40;
  const auto step = static_cast<int64_t>(std::clamp(wide_step, -limit, limit));
  const int64_t length = length_of(object);
  const int64_t start = clamp_bound(bounds[0], length, step < 0 ? length - 1 : 0, step);
  const int64_t stop = clamp_bound(bounds[1], length, step < 0 ? -1 : length, step);
  if (object.is(Kind::kString)) {
    return Value::of(
        slice_string(runtime, *object.str, start, std::max(stop, step > 0 ? start : stop), step));
  }
  List* out = runtime.list(object.list->form);
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    out->items.push_back(object.list->items[static_cast<size_t>(i)]);
  }
  runtime.charge_items(out->items.size());
  return Value::of(out);
}

Value get_path(Runtime& runtime, Value object, const Value& path) {
  if (!path.is(Kind::kString)) return get_item(runtime, object, path);
  std::string_view rest = path.text();
  while (true) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    int64_t index = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool digits = !name.empty() && name[0] != '-' && parsed.ec == std::errc() &&
                        parsed.ptr == name.data() + name.size();
    const Value key = digits ? Value::of(index) : Value::of(part(runtime, *path.str, name));
    object = get_item(runtime, object, key);
    if (name.size() == rest.size()) return object;
    rest.remove_prefix(name.size() + 1);
  }
}

std::span<const Value> iterate(Runtime& runtime, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
      if (value.list->form == Form::kGenerator) {
        if (value.list->consumed) return {};
        value.list->consumed = true;
      }
      runtime.charge_items(value.list->items.size());
      return value.list->items;
    case Kind::kDict: {
      List* keys = runtime.list(Form::kKeys);
      for (const Dict::Entry& entry : value.dict->entries) keys->items.push_back(entry.key);
      runtime.charge_items(keys->items.size());
      return keys->items;
    }
    case Kind::kString: {
      List* characters = runtime.list();
      const std::string_view text = value.text();
      runtime.charge_items(text.size());
      for (size_t at = 0; at < text.size();) {
        const size_t end = skip_code_points(text, at, 1);
        characters->items.push_back(Value::of(substr(runtime, *value.str, at, end)));
        at = end;
      }
      return characters->items;
    }
    default:
      fail(fmt::format("a {} cannot be iterated", type_name(value)));
  }
}

int64_t length_of(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.str->length();
    case Kind::kDict:
      return static_cast<int64_t>(value.dict->entries.size());
    case Kind::kList:
      if (value.list->form == Form::kGenerator) break;
      return static_cast<int64_t>(value.list->items.size());
    case Kind::kLoop:
      return static_cast<int64_t>(value.loop->items.size());
    default:
      break;
  }
  fail(fmt::format("a {} has no length", type_name(value)));
}

}  // namespace exode::text::jinja
