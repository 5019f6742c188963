#include "text/jinja/methods.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/loop.h"

namespace exode::text::jinja {
namespace {

using Names1 = std::array<std::string_view, 1>;
using Names2 = std::array<std::string_view, 2>;

// Inputs stay as the caller gave them, also for the templates that come after.
void require_own(const Value& self, std::string_view who) {
  const bool input = self.is(Kind::kDict) ? self.dict->from_context : self.list->from_context;
  if (input) fail(fmt::format("{} would change an input of the template", who));
}

Value dict_get(Runtime&, const Value& self, const Args& args) {
  const auto [key, fallback] = take_args(args, "get()", Names2{"key", "default"}, 1);
  if (const Value* value = self.dict->find(key)) return *value;
  return fallback.is(Kind::kAbsent) ? Value::none() : fallback;
}

Value dict_items(Runtime& rt, const Value& self, const Args& args) {
  bind_none(args, "items()");
  List* out = rt.list(Form::kItems);
  for (const Dict::Entry& entry : self.dict->entries) {
    out->items.push_back(rt.pair(entry.key, entry.value));
  }
  rt.charge_items(out->items.size());
  return Value::of(out);
}

Value dict_keys(Runtime& rt, const Value& self, const Args& args) {
  bind_none(args, "keys()");
  List* out = rt.list(Form::kKeys);
  for (const Dict::Entry& entry : self.dict->entries) out->items.push_back(entry.key);
  rt.charge_items(out->items.size());
  return Value::of(out);
}

Value dict_values(Runtime& rt, const Value& self, const Args& args) {
  bind_none(args, "values()");
  List* out = rt.list(Form::kValues);
  for (const Dict::Entry& entry : self.dict->entries) out->items.push_back(entry.value);
  rt.charge_items(out->items.size());
  return Value::of(out);
}

Value dict_copy(Runtime& rt, const Value& self, const Args& args) {
  bind_none(args, "copy()");
  Dict* out = rt.dict();
  for (const Dict::Entry& entry : self.dict->entries) out->set(entry.key, entry.value);
  rt.charge_items(out->entries.size());
  return Value::of(out);
}

Value list_append(Runtime& rt, const Value& self, const Args& args) {
  const auto [item] = take_args(args, "append()", Names1{"object"}, 1);
  require_own(self, "append()");
  rt.charge_items(1);
  self.list->items.push_back(item);
  return Value::none();
}

Value list_extend(Runtime& rt, const Value& self, const Args& args) {
  const auto [items] = take_args(args, "extend()", Names1{"iterable"}, 1);
  require_own(self, "extend()");
  const std::span<const Value> source = iterate(rt, items);
  const std::vector<Value> copy(source.begin(), source.end());
  self.list->items.insert(self.list->items.end(), copy.begin(), copy.end());
  return Value::none();
}

Value list_pop(Runtime& rt, const Value& self, const Args& args) {
  const auto [position] = take_args(args, "pop()", Names1{"index"}, 0);
  require_own(self, "pop()");
  auto& items = self.list->items;
  Int at = position.is(Kind::kAbsent) ? -1 : require_int(position, "pop()");
  if (at < 0) at += static_cast<Int>(items.size());
  if (at < 0 || at >= static_cast<Int>(items.size())) fail("pop(): index out of range");
  const Value value = items[static_cast<size_t>(at)];
  rt.charge_items(items.size());
  items.erase(items.begin() + static_cast<int64_t>(at));
  return value;
}

Value list_index(Runtime& rt, const Value& self, const Args& args) {
  const auto [item] = take_args(args, "index()", Names1{"value"}, 1);
  rt.charge_items(self.list->items.size());
  for (size_t i = 0; i < self.list->items.size(); ++i) {
    if (equals(self.list->items[i], item)) return Value::of(static_cast<int64_t>(i));
  }
  fail("index(): the value is not in the list");
}

Value list_count(Runtime& rt, const Value& self, const Args& args) {
  const auto [item] = take_args(args, "count()", Names1{"value"}, 1);
  rt.charge_items(self.list->items.size());
  const Value wanted = item;
  return Value::of(static_cast<int64_t>(
      std::count_if(self.list->items.begin(), self.list->items.end(),
                    [&](const Value& candidate) { return equals(candidate, wanted); })));
}

Value list_copy(Runtime& rt, const Value& self, const Args& args) {
  bind_none(args, "copy()");
  List* out = rt.list();
  out->items.assign(self.list->items.begin(), self.list->items.end());
  rt.charge_items(out->items.size());
  return Value::of(out);
}

Value loop_cycle(Runtime&, const Value& self, const Args& args) {
  if (args.positional.empty()) fail("loop.cycle() needs arguments");
  return args.positional[self.loop->index % args.positional.size()];
}

constexpr MethodEntry kDictMethods[] = {
    {"clear", nullptr},      {"copy", dict_copy}, {"fromkeys", nullptr},  {"get", dict_get},
    {"items", dict_items},   {"keys", dict_keys}, {"pop", nullptr},       {"popitem", nullptr},
    {"setdefault", nullptr}, {"update", nullptr}, {"values", dict_values}};
constexpr MethodEntry kListMethods[] = {
    {"append", list_append}, {"clear", nullptr},    {"copy", list_copy}, {"count", list_count},
    {"extend", list_extend}, {"index", list_index}, {"insert", nullptr}, {"pop", list_pop},
    {"remove", nullptr},     {"reverse", nullptr},  {"sort", nullptr}};
constexpr MethodEntry kTupleMethods[] = {{"count", list_count}, {"index", list_index}};
constexpr MethodEntry kLoopMethods[] = {{"cycle", loop_cycle}};

std::span<const MethodEntry> methods_of(const Value& value) {
  switch (value.kind) {
    case Kind::kString:
      return string_methods();
    case Kind::kDict:
      return kDictMethods;
    case Kind::kLoop:
      return kLoopMethods;
    case Kind::kList:
      if (value.list->form == Form::kList) return kListMethods;
      if (value.list->form == Form::kTuple || value.list->form == Form::kRange) {
        return kTupleMethods;
      }
      return {};
    default:
      return {};
  }
}

}  // namespace

Value bind_method(Runtime& runtime, const Value& object, const Str& name) {
  for (const MethodEntry& entry : methods_of(object)) {
    if (entry.name != name.text) continue;
    Value value;
    value.kind = Kind::kMethod;
    value.method = runtime.arena().make<Method>(object, &entry);
    return value;
  }
  return Value::undefined(&name, object.kind);
}

Value call_method(Runtime& runtime, const Method& method, const Args& args) {
  if (method.entry->call == nullptr) {
    fail(fmt::format("{}.{}() is not supported in chat templates", type_name(method.self),
                     method.entry->name));
  }
  return method.entry->call(runtime, method.self, args);
}

}  // namespace exode::text::jinja
