#include "text/jinja/tests.h"

#include <fmt/format.h>

#include "text/jinja/arithmetic.h"
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"

namespace exode::text::jinja {
namespace {

using Names1 = std::array<std::string_view, 1>;

Value only(const Args& args, std::string_view who) {
  return take_args(args, who, Names1{"other"}, 1)[0];
}

template <Kind kKind>
bool is_kind(Runtime&, const Value& value, const Args& args) {
  bind_none(args, "a type test");
  return value.is(kKind);
}

bool is_defined(Runtime&, const Value& value, const Args& args) {
  bind_none(args, "defined");
  return !value.is(Kind::kUndefined);
}
bool is_true(Runtime&, const Value& value, const Args& args) {
  bind_none(args, "true");
  return value.is(Kind::kBool) && value.boolean;
}
bool is_false(Runtime&, const Value& value, const Args& args) {
  bind_none(args, "false");
  return value.is(Kind::kBool) && !value.boolean;
}
bool is_number(Runtime&, const Value& value, const Args& args) {
  bind_none(args, "number");
  return value.is_number();
}
bool is_iterable(Runtime&, const Value& value, const Args& args) {
  bind_none(args, "iterable");
  return value.is(Kind::kUndefined) || value.is(Kind::kString) || value.is(Kind::kList) ||
         value.is(Kind::kDict) || value.is(Kind::kLoop);
}
// What has a length and can be indexed: mappings too, generators not.
bool is_sequence(Runtime&, const Value& value, const Args& args) {
  bind_none(args, "sequence");
  if (value.is(Kind::kList)) {
    return value.list->form == Form::kList || value.list->form == Form::kTuple ||
           value.list->form == Form::kRange;
  }
  return value.is(Kind::kUndefined) || value.is(Kind::kString) || value.is(Kind::kDict);
}
bool is_callable(Runtime&, const Value& value, const Args& args) {
  bind_none(args, "callable");
  return value.is(Kind::kUndefined) || value.is(Kind::kMacro) || value.is(Kind::kMethod) ||
         value.is(Kind::kFunction);
}
bool is_sameas(Runtime&, const Value& value, const Args& args) {
  return same(value, only(args, "sameas"));
}
bool is_in(Runtime& rt, const Value& value, const Args& args) {
  return contains(rt, only(args, "in"), value);
}
template <Op kOp>
bool compares(Runtime& rt, const Value& value, const Args& args) {
  return compare_with(rt, kOp, value, only(args, "a comparison test"));
}

Int remainder(Runtime& rt, const Value& value, Int divisor) {
  const Value result = calculate(rt, Op::kModulo, value, Value::of(divisor));
  return result.is(Kind::kFloat) ? (result.real == 0   ? 0
                                    : result.real == 1 ? 1
                                                       : 2)
                                 : require_int(result, "a divisibility test");
}
bool is_odd(Runtime& rt, const Value& value, const Args& args) {
  bind_none(args, "odd");
  return remainder(rt, value, 2) == 1;
}
bool is_even(Runtime& rt, const Value& value, const Args& args) {
  bind_none(args, "even");
  return remainder(rt, value, 2) == 0;
}
bool is_divisible(Runtime& rt, const Value& value, const Args& args) {
  return remainder(rt, value, require_int(only(args, "divisibleby"), "divisibleby")) == 0;
}

bool string_test(Runtime& rt, const Value& value, const Args& args, std::string_view method) {
  bind_none(args, "a case test");
  const Str name{method};
  const Value bound = bind_method(rt, Value::of(to_str(rt, value)), name);
  return truthy(call_method(rt, *bound.method, args));
}
bool is_lower(Runtime& rt, const Value& value, const Args& args) {
  return string_test(rt, value, args, "islower");
}
bool is_upper(Runtime& rt, const Value& value, const Args& args) {
  return string_test(rt, value, args, "isupper");
}
bool is_filter(Runtime&, const Value& value, const Args& args) {
  bind_none(args, "filter");
  return value.is(Kind::kString) && find_filter(value.text()) != nullptr;
}
bool is_test(Runtime&, const Value& value, const Args& args) {
  bind_none(args, "test");
  return value.is(Kind::kString) && find_test(value.text()) != nullptr;
}

constexpr Test kTests[] = {
    {"defined", is_defined},
    {"undefined", is_kind<Kind::kUndefined>},
    {"none", is_kind<Kind::kNone>},
    {"string", is_kind<Kind::kString>},
    {"mapping", is_kind<Kind::kDict>},
    {"boolean", is_kind<Kind::kBool>},
    {"integer", is_kind<Kind::kInt>},
    {"float", is_kind<Kind::kFloat>},
    {"number", is_number},
    {"true", is_true},
    {"false", is_false},
    {"iterable", is_iterable},
    {"sequence", is_sequence},
    {"callable", is_callable},
    {"sameas", is_sameas},
    {"in", is_in},
    {"==", compares<Op::kEqual>},
    {"eq", compares<Op::kEqual>},
    {"equalto", compares<Op::kEqual>},
    {"!=", compares<Op::kNotEqual>},
    {"ne", compares<Op::kNotEqual>},
    {"<", compares<Op::kLess>},
    {"lt", compares<Op::kLess>},
    {"lessthan", compares<Op::kLess>},
    {"<=", compares<Op::kLessEqual>},
    {"le", compares<Op::kLessEqual>},
    {">", compares<Op::kGreater>},
    {"gt", compares<Op::kGreater>},
    {"greaterthan", compares<Op::kGreater>},
    {">=", compares<Op::kGreaterEqual>},
    {"ge", compares<Op::kGreaterEqual>},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"lower", is_lower},
    {"upper", is_upper},
    {"filter", is_filter},
    {"test", is_test},
};

}  // namespace

const Test* find_test(std::string_view name) {
  for (const Test& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace exode::text::jinja
