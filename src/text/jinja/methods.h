// Methods of strings, lists, mappings and `loop`.
#pragma once

#include "text/jinja/runtime.h"

namespace exode::text::jinja {

using MethodFunction = Value (*)(Runtime&, const Value& self, const Args&);

struct MethodEntry {
  std::string_view name;
  MethodFunction call;  // null: Python has it, templates cannot use it
};

struct Method {
  Value self;
  const MethodEntry* entry;
};

// A kMethod value, or undefined when the kind has no method of this name.
Value bind_method(Runtime& runtime, const Value& object, const Str& name);
Value call_method(Runtime& runtime, const Method& method, const Args& args);

std::span<const MethodEntry> string_methods();

}  // namespace exode::text::jinja
