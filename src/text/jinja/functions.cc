#include "text/jinja/functions.h"

#include <fmt/format.h>

#include <algorithm>

namespace exode::text::jinja {
namespace {

constexpr size_t kDateBytesMax = 4096;

Value range(Runtime& rt, const Args& args) {
  const auto& given = args.positional;
  if (!args.named.empty() || given.empty() || given.size() > 3) {
    fail("range() takes one to three integers");
  }
  const Int first = given.size() == 1 ? 0 : require_int(given[0], "range()");
  const Int stop = require_int(given.size() == 1 ? given[0] : given[1], "range()");
  const Int step = given.size() == 3 ? require_int(given[2], "range()") : 1;
  if (step == 0) fail("range() cannot have step 0");
  const Int limit = Int{1} << 100;
  for (const Int value : {first, stop, step}) {
    if (value > limit || value < -limit) fail("range() of too large numbers");
  }
  const Int span = step > 0 ? stop - first : first - stop;
  const Int stride = step > 0 ? step : -step;
  const Int count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (count > kRangeMax) fail(fmt::format("range() exceeds {} items", kRangeMax));
  List* out = rt.list(Form::kRange);
  out->items.reserve(static_cast<size_t>(count));
  for (Int i = 0; i < count; ++i) out->items.push_back(Value::of(first + i * step));
  rt.charge_items(out->items.size());
  return Value::of(out);
}

void add_pairs(Runtime& rt, const Value& source, Dict& out) {
  if (source.is(Kind::kDict)) {
    for (const Dict::Entry& entry : source.dict->entries) out.set(entry.key, entry.value);
    rt.charge_items(source.dict->entries.size());
    return;
  }
  for (const Value& item : iterate(rt, source)) {
    const std::span<const Value> pair = iterate(rt, item);
    if (pair.size() != 2) fail("dict() needs pairs");
    const Value key = pair[0];
    out.set(key, pair[1]);
  }
}

Dict* make_dict(Runtime& rt, const Args& args, std::string_view who) {
  if (args.positional.size() > 1) fail(fmt::format("{} takes at most one mapping", who));
  Dict* out = rt.dict();
  if (!args.positional.empty()) add_pairs(rt, args.positional[0], *out);
  for (const Args::Named& named : args.named) {
    out->set(Value::of(rt.view(named.name, true)), named.value);
  }
  return out;
}

Value dict(Runtime& rt, const Args& args) { return Value::of(make_dict(rt, args, "dict()")); }

void check_attribute(std::string_view name) {
  if (name.starts_with('_')) fail(fmt::format("'{}' cannot be an attribute of a namespace", name));
}

Value make_namespace(Runtime& rt, const Args& args) {
  Dict* attributes = make_dict(rt, args, "namespace()");
  for (const Dict::Entry& entry : attributes->entries) {
    check_attribute(require_str(entry.key, "namespace()").text);
  }
  Value value = Value::of(attributes);
  value.kind = Kind::kNamespace;
  return value;
}

Value raise_exception(Runtime& rt, const Args& args) {
  const auto [message] =
      take_args(args, "raise_exception()", std::array<std::string_view, 1>{"message"}, 1);
  throw RenderError{std::string(to_str(rt, message)->text), true};
}

Value strftime_now(Runtime& rt, const Args& args) {
  const auto [format] =
      take_args(args, "strftime_now()", std::array<std::string_view, 1>{"format"}, 1);
  // A leading mark tells an empty result from a result that does not fit.
  const std::string pattern = "." + std::string(require_str(format, "strftime_now()").text);
  std::array<char, kDateBytesMax> buffer;
  const size_t size = std::strftime(buffer.data(), buffer.size(), pattern.c_str(), &rt.now());
  if (size == 0) fail("strftime_now(): the result is too long");
  return Value::of(rt.copy({buffer.data() + 1, size - 1}, !format.str->has_data()));
}

constexpr Function kFunctions[] = {{"range", range},
                                   {"namespace", make_namespace},
                                   {"dict", dict},
                                   {"raise_exception", raise_exception},
                                   {"strftime_now", strftime_now}};

}  // namespace

Value find_function(std::string_view name) {
  for (const Function& function : kFunctions) {
    if (function.name != name) continue;
    Value value;
    value.kind = Kind::kFunction;
    value.function = &function;
    return value;
  }
  return Value::undefined(nullptr);
}

void set_attribute(const Value& object, const Str& name, const Value& value) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (!object.is(Kind::kNamespace)) {
    fail(fmt::format("attributes can be set on a namespace only, not on {}", type_name(object)));
  }
  check_attribute(name.text);
  object.dict->set(Value::of(&name), value);
}

}  // namespace exode::text::jinja
