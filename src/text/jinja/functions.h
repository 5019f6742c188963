// Functions that every template can call.
#pragma once

#include "text/jinja/runtime.h"

namespace exode::text::jinja {

struct Function {
  std::string_view name;
  Value (*call)(Runtime&, const Args&);
};

// kFunction, or undefined.
Value find_function(std::string_view name);
// Assigns an attribute of a namespace; fails on anything else.
void set_attribute(const Value& object, const Str& name, const Value& value);

}  // namespace exode::text::jinja
