// The variable `loop` of a for statement.
#pragma once

#include <span>

#include "text/jinja/value.h"

namespace exode::text::jinja {

struct Loop {
  std::span<const Value> items;
  size_t index = 0;
};

}  // namespace exode::text::jinja
