#include <fmt/format.h>

#include "text/jinja/arithmetic.h"
#include "text/jinja/filters.h"
#include "text/jinja/functions.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"
#include "text/jinja/tests.h"

namespace exode::text::jinja {

Value Interpreter::eval(const Expr& expr, Scope& scope) {
  const Visit visit(*this);
  const auto operand = [&](size_t i) { return eval(*expr.operands[i], scope); };
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.constant;
    case ExprKind::kName:
      return eval_name(expr, scope);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return eval_list(expr, scope);
    case ExprKind::kDict:
      return eval_dict(expr, scope);
    case ExprKind::kAttribute: {
      const Value object = operand(0);
      position_ = expr.position;
      return get_attribute(runtime_, object, *expr.constant.str);
    }
    case ExprKind::kItem: {
      const Value object = operand(0);
      const Value key = operand(1);
      position_ = expr.position;
      return get_item(runtime_, object, key);
    }
    case ExprKind::kSlice:
      return eval_slice(expr, scope);
    case ExprKind::kCall:
      return eval_call(expr, scope);
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return eval_filter(expr, scope);
    case ExprKind::kNegate:
    case ExprKind::kPlus: {
      const Value value = operand(0);
      position_ = expr.position;
      const Value negated = negate(value);
      return expr.kind == ExprKind::kNegate ? negated : negate(negated);
    }
    case ExprKind::kNot:
      return Value::of(!truthy(operand(0)));
    case ExprKind::kAnd: {
      const Value left = operand(0);
      return truthy(left) ? operand(1) : left;
    }
    case ExprKind::kOr: {
      const Value left = operand(0);
      return truthy(left) ? left : operand(1);
    }
    case ExprKind::kConditional:
      if (truthy(operand(0))) return operand(1);
      return expr.operands[2] == nullptr ? Value::undefined(nullptr) : operand(2);
    case ExprKind::kConcat:
      return eval_concat(expr, scope);
    case ExprKind::kCompare:
      return eval_compare(expr, scope);
    case ExprKind::kBinary:
      break;
  }
  const Value left = operand(0);
  const Value right = operand(1);
  position_ = expr.position;
  return calculate(runtime_, expr.op, left, right);
}

Value Interpreter::eval_name(const Expr& expr, Scope& scope) {
  for (Scope* s = &scope; s != nullptr; s = s->parent) {
    if (const Value* value = s->find(expr.symbol)) return *value;
  }
  position_ = expr.position;
  return context_value(expr.symbol, expr.constant.str);
}

Value Interpreter::eval_list(const Expr& expr, Scope& scope) {
  List* list = runtime_.list(expr.kind == ExprKind::kList ? Form::kList : Form::kTuple);
  list->items.reserve(expr.operands.size());
  for (const Expr* item : expr.operands) list->items.push_back(eval(*item, scope));
  return Value::of(list);
}

Value Interpreter::eval_dict(const Expr& expr, Scope& scope) {
  Dict* dict = runtime_.dict();
  for (size_t i = 0; i < expr.operands.size(); i += 2) {
    const Value key = eval(*expr.operands[i], scope);
    const Value value = eval(*expr.operands[i + 1], scope);
    position_ = expr.operands[i]->position;
    dict->set(key, value);
  }
  return Value::of(dict);
}

Value Interpreter::eval_slice(const Expr& expr, Scope& scope) {
  const Value object = eval(*expr.operands[0], scope);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const Expr* bound = expr.operands[i + 1];
    bounds[i] = bound == nullptr ? Value::none() : eval(*bound, scope);
  }
  position_ = expr.position;
  return get_slice(runtime_, object, bounds);
}

Args Interpreter::eval_arguments(const Expr& expr, Scope& scope) {
  Args args;
  const size_t named = expr.operands.size() - expr.names.size();
  if (named > 1) args.positional.reserve(named - 1);
  for (size_t i = 1; i < named; ++i) args.positional.push_back(eval(*expr.operands[i], scope));
  for (size_t i = named; i < expr.operands.size(); ++i) {
    args.named.push_back({expr.names[i - named], eval(*expr.operands[i], scope)});
  }
  return args;
}

Value Interpreter::eval_call(const Expr& expr, Scope& scope) {
  const Value callee = eval(*expr.operands[0], scope);
  const Args args = eval_arguments(expr, scope);
  position_ = expr.position;
  return call(callee, args);
}

Value Interpreter::call(const Value& callee, const Args& args) {
  switch (callee.kind) {
    case Kind::kUndefined:
      fail_undefined(callee);
    case Kind::kMacro:
      return call_macro(*callee.macro, args);
    case Kind::kMethod:
      return call_method(runtime_, *callee.method, args);
    case Kind::kFunction:
      return callee.function->call(runtime_, args);
    default:
      fail(fmt::format("a {} cannot be called", type_name(callee)));
  }
}

Value Interpreter::eval_filter(const Expr& expr, Scope& scope) {
  const Value input = eval(*expr.operands[0], scope);
  const Args args = eval_arguments(expr, scope);
  position_ = expr.position;
  if (expr.kind == ExprKind::kFilter) return expr.filter->call(runtime_, input, args);
  return Value::of(expr.test->call(runtime_, input, args));
}

Value Interpreter::eval_concat(const Expr& expr, Scope& scope) {
  const Str* text = to_str(runtime_, eval(*expr.operands[0], scope));
  if (expr.operands.size() == 2) {
    const Value right = eval(*expr.operands[1], scope);
    return Value::of(exode::text::jinja::concat(runtime_, *text, *to_str(runtime_, right)));
  }
  TextBuilder builder;
  builder.append(*text);
  for (size_t i = 1; i < expr.operands.size(); ++i) {
    builder.append(*to_str(runtime_, eval(*expr.operands[i], scope)));
  }
  return Value::of(builder.finish(runtime_));
}

Value Interpreter::eval_compare(const Expr& expr, Scope& scope) {
  Value left = eval(*expr.operands[0], scope);
  for (size_t i = 0; i < expr.compares.size(); ++i) {
    const Value right = eval(*expr.operands[i + 1], scope);
    position_ = expr.position;
    if (!compare_with(runtime_, expr.compares[i], left, right)) return Value::of(false);
    left = right;
  }
  return Value::of(true);
}

}  // namespace exode::text::jinja
