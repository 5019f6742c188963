#include "text/jinja/arithmetic.h"

#include <fmt/format.h>

#include <cmath>

#include "text/jinja/text_ops.h"

namespace exode::text::jinja {
namespace {

constexpr std::array<std::string_view, 7> kOperatorNames = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void fail_overflow() { fail("an integer exceeds 127 bits"); }

Value divide(const Value& a, const Value& b) {
  if (b.as_real() == 0) fail("division by zero");
  return Value::of(a.as_real() / b.as_real());
}

// Rounds towards minus infinity; the remainder has the sign of the divisor.
Value floor_divide(Op op, const Value& a, const Value& b) {
  if (b.as_real() == 0) fail("division by zero");
  if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) {
    double rest = std::fmod(a.as_real(), b.as_real());
    if (rest != 0 && (rest < 0) != (b.as_real() < 0)) rest += b.as_real();
    if (op == Op::kModulo) return Value::of(rest == 0 ? std::copysign(0.0, b.as_real()) : rest);
    return Value::of(std::round((a.as_real() - rest) / b.as_real()));
  }
  const Int x = a.as_int();
  const Int y = b.as_int();
  if (y == -1) {
    if (op == Op::kModulo) return Value::of(Int{0});
    return negate(Value::of(x));
  }
  const Int rest = x % y;
  const bool adjust = rest != 0 && (rest < 0) != (y < 0);
  if (op == Op::kModulo) return Value::of(adjust ? rest + y : rest);
  return Value::of(adjust ? x / y - 1 : x / y);
}

Value power(const Value& a, const Value& b) {
  if (a.is(Kind::kFloat) || b.is(Kind::kFloat) || b.as_int() < 0) {
    if (a.as_real() == 0 && b.as_real() < 0) fail("division by zero");
    const double result = std::pow(a.as_real(), b.as_real());
    if (std::isnan(result) && !std::isnan(a.as_real()) && !std::isnan(b.as_real())) {
      fail("the power of a negative number is not real");
    }
    return Value::of(result);
  }
  Int base = a.as_int();
  Int result = 1;
  for (Int exponent = b.as_int(); exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value::of(result);
}

Value calculate_numbers(Op op, const Value& a, const Value& b) {
  if (op == Op::kDivide) return divide(a, b);
  if (op == Op::kFloorDivide || op == Op::kModulo) return floor_divide(op, a, b);
  if (op == Op::kPower) return power(a, b);
  if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) {
    const double x = a.as_real();
    const double y = b.as_real();
    return Value::of(op == Op::kAdd ? x + y : op == Op::kSubtract ? x - y : x * y);
  }
  Int out = 0;
  const Int x = a.as_int();
  const Int y = b.as_int();
  const bool overflow = op == Op::kAdd        ? __builtin_add_overflow(x, y, &out)
                        : op == Op::kSubtract ? __builtin_sub_overflow(x, y, &out)
                                              : __builtin_mul_overflow(x, y, &out);
  if (overflow) fail_overflow();
  return Value::of(out);
}

bool is_plain_list(const Value& value) {
  return value.is(Kind::kList) &&
         (value.list->form == Form::kList || value.list->form == Form::kTuple);
}

Value repeat(Runtime& runtime, const Value& value, Int count) {
  if (count < 0) count = 0;
  const Int size = value.is(Kind::kString) ? static_cast<Int>(value.text().size())
                                           : static_cast<Int>(value.list->items.size());
  const Int limit = value.is(Kind::kString) ? static_cast<Int>(kOutputBytesMax) : Int{kRangeMax};
  if (size == 0) count = 0;
  if (count > limit || count * size > limit) fail("a repetition becomes too long");
  if (value.is(Kind::kString)) {
    TextBuilder out;
    for (Int i = 0; i < count; ++i) out.append(*value.str);
    return Value::of(out.finish(runtime));
  }
  List* out = runtime.list(value.list->form);
  for (Int i = 0; i < count; ++i) {
    out->items.insert(out->items.end(), value.list->items.begin(), value.list->items.end());
  }
  runtime.charge_items(out->items.size());
  return Value::of(out);
}

}  // namespace

Value calculate(Runtime& runtime, Op op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return calculate_numbers(op, a, b);
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (op == Op::kModulo && a.is(Kind::kString)) {
    return Value::of(format_percent(runtime, *a.str, b));
  }
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  if (op == Op::kAdd && a.is(Kind::kString) && b.is(Kind::kString)) {
    return Value::of(add(runtime, *a.str, *b.str));
  }
  if (op == Op::kAdd && is_plain_list(a) && is_plain_list(b) && a.list->form == b.list->form) {
    List* out = runtime.list(a.list->form);
    out->items.reserve(a.list->items.size() + b.list->items.size());
    out->items.insert(out->items.end(), a.list->items.begin(), a.list->items.end());
    out->items.insert(out->items.end(), b.list->items.begin(), b.list->items.end());
    runtime.charge_items(out->items.size());
    return Value::of(out);
  }
  const auto repeats = [](const Value& v) { return v.is(Kind::kString) || is_plain_list(v); };
  if (op == Op::kMultiply && repeats(a) && b.is_integral()) return repeat(runtime, a, b.as_int());
  if (op == Op::kMultiply && repeats(b) && a.is_integral()) return repeat(runtime, b, a.as_int());
  fail(fmt::format("operator {} does not take {} and {}", kOperatorNames[static_cast<size_t>(op)],
                   type_name(a), type_name(b)));
}

bool compare_with(Runtime& runtime, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEqual:
    case Op::kNotEqual:
      if (a.is(Kind::kString)) runtime.charge_bytes(a.text().size());
      return equals(a, b) == (op == Op::kEqual);
    case Op::kIn:
      return contains(runtime, b, a);
    case Op::kNotIn:
      return !contains(runtime, b, a);
    case Op::kLess:
      return compare(runtime, a, b) < 0;
    case Op::kLessEqual:
      return compare(runtime, a, b) <= 0;
    case Op::kGreater:
      return compare(runtime, a, b) > 0;
    default:
      return compare(runtime, a, b) >= 0;
  }
}

Value negate(const Value& value) {
  if (value.is(Kind::kUndefined)) fail_undefined(value);
  if (value.is(Kind::kFloat)) return Value::of(-value.real);
  if (!value.is_integral()) {
    fail(fmt::format("unary minus does not take {}", type_name(value)));
  }
  Int out = 0;
  if (__builtin_sub_overflow(Int{0}, value.as_int(), &out)) fail_overflow();
  return Value::of(out);
}

}  // namespace exode::text::jinja
