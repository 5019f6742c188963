#pragma once

#include "text/jinja/runtime.h"

namespace exode::text::jinja {

struct Test {
  std::string_view name;
  bool (*call)(Runtime&, const Value& value, const Args&);
};

// Null when templates may not use the name.
const Test* find_test(std::string_view name);

}  // namespace exode::text::jinja
