// The arithmetic and comparison operators.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace exode::text::jinja {

Value calculate(Runtime& runtime, Op op, const Value& a, const Value& b);
bool compare_with(Runtime& runtime, Op op, const Value& a, const Value& b);
Value negate(const Value& value);

}  // namespace exode::text::jinja
