#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/limits.h"

namespace exode::text::jinja {
namespace {

constexpr size_t kLinearEntriesMax = 8;

// Equal numbers of different kinds have equal hashes.
size_t hash_real(double value) {
  if (std::floor(value) == value && std::abs(value) < 1e18) {
    return std::hash<int64_t>()(static_cast<int64_t>(value));
  }
  return std::hash<double>()(value);
}

}  // namespace

void* Arena::Limit::do_allocate(size_t bytes, size_t alignment) {
  if (bytes > left_) fail("the template needs more memory than a render may use");
  left_ -= bytes;
  return std::pmr::new_delete_resource()->allocate(bytes, alignment);
}

void Arena::Limit::do_deallocate(void* p, size_t bytes, size_t alignment) {
  left_ += bytes;
  std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
}

int64_t Str::length() const {
  if (points < 0) {
    points = std::count_if(text.begin(), text.end(),
                           [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  }
  return points;
}

Value Value::none() {
  Value v;
  v.kind = Kind::kNone;
  return v;
}
Value Value::absent() {
  Value v;
  v.kind = Kind::kAbsent;
  return v;
}
Value Value::undefined(const Str* name, Kind owner_kind) {
  Value v;
  v.owner = owner_kind;
  v.str = name;
  return v;
}
Value Value::of(bool value) {
  Value v;
  v.kind = Kind::kBool;
  v.boolean = value;
  return v;
}
Value Value::of(Int value) {
  Value v;
  v.kind = Kind::kInt;
  v.integer = value;
  return v;
}
Value Value::of(double value) {
  Value v;
  v.kind = Kind::kFloat;
  v.real = value;
  return v;
}
Value Value::of(const Str* value) {
  Value v;
  v.kind = Kind::kString;
  v.str = value;
  return v;
}
Value Value::of(List* value) {
  Value v;
  v.kind = Kind::kList;
  v.list = value;
  return v;
}
Value Value::of(Dict* value) {
  Value v;
  v.kind = Kind::kDict;
  v.dict = value;
  return v;
}

void fail(std::string message) { throw RenderError{std::move(message)}; }

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kAbsent:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kMacro:
      return "macro";
    case Kind::kMethod:
      return "method";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "loop";
    case Kind::kList:
      break;
  }
  switch (value.list->form) {
    case Form::kList:
      return "list";
    case Form::kTuple:
      return "tuple";
    case Form::kRange:
      return "range";
    case Form::kGenerator:
      return "generator";
    case Form::kKeys:
      return "dict_keys";
    case Form::kValues:
      return "dict_values";
    case Form::kItems:
      return "dict_items";
  }
  return "?";
}

std::string undefined_message(const Value& value) {
  if (value.str == nullptr) return "the value is undefined";
  if (value.owner == Kind::kUndefined) return fmt::format("'{}' is undefined", value.text());
  Value owner;
  owner.kind = value.owner;
  const std::string_view type = value.owner == Kind::kList ? "list" : type_name(owner);
  return fmt::format("'{} object' has no attribute '{}'", type, value.text());
}

void fail_undefined(const Value& value) { fail(undefined_message(value)); }

bool truthy(const Value& value) {
  switch (value.kind) {
    case Kind::kAbsent:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
      return value.list->form == Form::kGenerator || !value.list->items.empty();
    case Kind::kDict:
      return !value.dict->entries.empty();
    default:
      return true;
  }
}

bool same(const Value& a, const Value& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return a.boolean == b.boolean;
    case Kind::kInt:
      return a.integer == b.integer;
    case Kind::kFloat:
      return a.real == b.real;
    case Kind::kString:
      return a.str == b.str || a.text() == b.text();
    default:
      return a.str == b.str;
  }
}

namespace {

bool equal_lists(const List& a, const List& b, int depth) {
  if (&a == &b) return true;
  if (a.form != b.form || a.form == Form::kGenerator || a.form == Form::kValues) return false;
  if (a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equals(a.items[i], b.items[i], depth + 1)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, int depth) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  for (const Dict::Entry& entry : a.entries) {
    const Value* other = b.find(entry.key);
    if (other == nullptr || !equals(entry.value, *other, depth + 1)) return false;
  }
  return true;
}

}  // namespace

bool equals(const Value& a, const Value& b, int depth) {
  if (depth > kValueDepthMax) fail("values are nested too deeply to compare");
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) return a.as_real() == b.as_real();
    return a.as_int() == b.as_int();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
      return equal_lists(*a.list, *b.list, depth);
    case Kind::kDict:
      return equal_dicts(*a.dict, *b.dict, depth);
    default:
      return a.str == b.str;
  }
}

size_t hash_text(std::string_view text) { return std::hash<std::string_view>()(text); }

size_t hash_of(const Value& value) {
  switch (value.kind) {
    case Kind::kString:
      return hash_text(value.text());
    case Kind::kNone:
    case Kind::kUndefined:
      return 1;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return hash_real(value.as_real());
    case Kind::kList: {
      if (value.list->form != Form::kTuple) break;
      size_t hash = 2;
      for (const Value& item : value.list->items) hash = hash * 31 + hash_of(item);
      return hash;
    }
    case Kind::kDict:
      break;
    default:
      return std::hash<const void*>()(value.str);
  }
  fail(fmt::format("a {} cannot be a mapping key", type_name(value)));
}

int64_t Dict::find_text(std::string_view key, size_t hash) const {
  if (slots.empty()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      const Value& k = entries[i].key;
      if (k.is(Kind::kString) && k.text() == key) return static_cast<int64_t>(i);
    }
    return -1;
  }
  for (size_t at = hash & (slots.size() - 1); slots[at] >= 0; at = (at + 1) & (slots.size() - 1)) {
    const Value& k = entries[static_cast<size_t>(slots[at])].key;
    if (k.is(Kind::kString) && k.text() == key) return slots[at];
  }
  return -1;
}

int64_t Dict::find_index(const Value& key, size_t hash) const {
  if (key.is(Kind::kString)) return find_text(key.text(), hash);
  if (slots.empty()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (equals(entries[i].key, key)) return static_cast<int64_t>(i);
    }
    return -1;
  }
  for (size_t at = hash & (slots.size() - 1); slots[at] >= 0; at = (at + 1) & (slots.size() - 1)) {
    if (equals(entries[static_cast<size_t>(slots[at])].key, key)) return slots[at];
  }
  return -1;
}

const Value* Dict::find(std::string_view key) const {
  const int64_t i = find_text(key, slots.empty() ? 0 : hash_text(key));
  return i < 0 ? nullptr : &entries[static_cast<size_t>(i)].value;
}

const Value* Dict::find(const Value& key) const {
  const int64_t i = find_index(key, hash_of(key));
  return i < 0 ? nullptr : &entries[static_cast<size_t>(i)].value;
}

void Dict::set(const Value& key, const Value& value) {
  const int64_t found = find_index(key, hash_of(key));
  if (found >= 0) {
    entries[static_cast<size_t>(found)].value = value;
    return;
  }
  entries.push_back({key, value});
  if (entries.size() > kLinearEntriesMax) rebuild();
}

void Dict::rebuild() {
  const auto place = [this](size_t entry) {
    size_t at = hash_of(entries[entry].key) & (slots.size() - 1);
    while (slots[at] >= 0) at = (at + 1) & (slots.size() - 1);
    slots[at] = static_cast<int32_t>(entry);
  };
  if (entries.size() * 2 <= slots.size()) return place(entries.size() - 1);
  size_t size = 32;
  while (size < entries.size() * 4) size *= 2;
  slots.assign(size, -1);
  for (size_t i = 0; i < entries.size(); ++i) place(i);
}

}  // namespace exode::text::jinja
