#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "text/jinja/filters.h"
#include "text/jinja/parser_impl.h"
#include "text/jinja/tests.h"

namespace exode::text::jinja {

Expr* Parser::make(ExprKind kind, Position position) {
  return program_.arena.make<Expr>(kind, position, program_.arena.memory());
}

void Parser::add(Expr& expr, const Expr* operand) {
  expr.operands.push_back(operand);
  if (operand == nullptr) return;
  expr.depth = std::max(expr.depth, operand->depth + 1);
  if (expr.depth > kChainDepthMax) fail("the expression is too long");
}

Expr* Parser::binary(ExprKind kind, Op op, const Expr* left, const Expr* right) {
  Expr* expr = make(kind, left->position);
  expr->op = op;
  add(*expr, left);
  add(*expr, right);
  return expr;
}

const Str* Parser::text(std::string_view value) {
  return program_.arena.make<Str>(program_.arena.copy(value));
}

const Expr* Parser::parse_expression(Conditional conditional) {
  const Nesting nesting(*this);
  return conditional == Conditional::kAllowed ? parse_conditional() : parse_or();
}

// One expression, or several with commas: a tuple.
const Expr* Parser::parse_tuple(Conditional conditional, bool parenthesized) {
  const Position position = peek().position;
  Expr* tuple = make(ExprKind::kTuple, position);
  bool comma = false;
  while (true) {
    const TokenKind kind = peek().kind;
    if (kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || peek().is(")")) break;
    add(*tuple, parse_expression(conditional));
    if (!skip_op(",")) break;
    comma = true;
  }
  if (comma || (parenthesized && tuple->operands.empty())) return tuple;
  if (tuple->operands.empty()) {
    fail(fmt::format("expected an expression, got {}", describe(peek())));
  }
  return tuple->operands[0];
}

const Expr* Parser::parse_conditional() {
  const Expr* value = parse_or();
  while (skip_name("if")) {
    Expr* expr = make(ExprKind::kConditional, value->position);
    add(*expr, parse_or());
    add(*expr, value);
    const Nesting nesting(*this);
    add(*expr, skip_name("else") ? parse_conditional() : nullptr);
    value = expr;
  }
  return value;
}

const Expr* Parser::parse_or() {
  const Expr* left = parse_and();
  while (skip_name("or")) left = binary(ExprKind::kOr, Op::kAdd, left, parse_and());
  return left;
}

const Expr* Parser::parse_and() {
  const Expr* left = parse_not();
  while (skip_name("and")) left = binary(ExprKind::kAnd, Op::kAdd, left, parse_not());
  return left;
}

const Expr* Parser::parse_not() {
  if (!peek().is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  Expr* expr = make(ExprKind::kNot, next().position);
  add(*expr, parse_not());
  return expr;
}

const Expr* Parser::parse_compare() {
  const Expr* first = parse_sum();
  Expr* expr = nullptr;
  while (true) {
    Op op = Op::kIn;
    size_t tokens = 1;
    if (peek().is("==")) {
      op = Op::kEqual;
    } else if (peek().is("!=")) {
      op = Op::kNotEqual;
    } else if (peek().is("<")) {
      op = Op::kLess;
    } else if (peek().is("<=")) {
      op = Op::kLessEqual;
    } else if (peek().is(">")) {
      op = Op::kGreater;
    } else if (peek().is(">=")) {
      op = Op::kGreaterEqual;
    } else if (peek().is_name("not") && peek(1).is_name("in")) {
      op = Op::kNotIn;
      tokens = 2;
    } else if (!peek().is_name("in")) {
      return expr == nullptr ? first : expr;
    }
    if (expr == nullptr) {
      expr = make(ExprKind::kCompare, first->position);
      add(*expr, first);
    }
    at_ += tokens;
    expr->compares.push_back(op);
    add(*expr, parse_sum());
  }
}

const Expr* Parser::parse_sum() {
  const Expr* left = parse_concat();
  while (peek().is("+") || peek().is("-")) {
    const Op op = next().text == "+" ? Op::kAdd : Op::kSubtract;
    left = binary(ExprKind::kBinary, op, left, parse_concat());
  }
  return left;
}

const Expr* Parser::parse_concat() {
  const Expr* first = parse_product();
  if (!peek().is("~")) return first;
  Expr* expr = make(ExprKind::kConcat, first->position);
  add(*expr, first);
  while (skip_op("~")) add(*expr, parse_product());
  return expr;
}

const Expr* Parser::parse_product() {
  const Expr* left = parse_power();
  while (true) {
    Op op = Op::kMultiply;
    if (peek().is("/")) {
      op = Op::kDivide;
    } else if (peek().is("//")) {
      op = Op::kFloorDivide;
    } else if (peek().is("%")) {
      op = Op::kModulo;
    } else if (!peek().is("*")) {
      return left;
    }
    next();
    left = binary(ExprKind::kBinary, op, left, parse_power());
  }
}

const Expr* Parser::parse_power() {
  const Expr* left = parse_unary(true);
  while (skip_op("**")) left = binary(ExprKind::kBinary, Op::kPower, left, parse_unary(true));
  return left;
}

const Expr* Parser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  const Expr* operand = nullptr;
  if (peek().is("-") || peek().is("+")) {
    const Token& token = next();
    Expr* expr = make(token.text == "-" ? ExprKind::kNegate : ExprKind::kPlus, token.position);
    add(*expr, parse_unary(false));
    operand = expr;
  } else {
    operand = parse_primary();
  }
  operand = parse_postfix(operand);
  return with_filters ? parse_filters(operand) : operand;
}

const Expr* Parser::parse_primary() {
  const Token& token = peek();
  if (token.kind == TokenKind::kName) return parse_name();
  if (token.kind == TokenKind::kString) return parse_string();
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return parse_number();
  if (token.is("[")) return parse_list();
  if (token.is("{")) return parse_dict();
  if (!token.is("(")) fail(fmt::format("unexpected {}", describe(token)));
  next();
  const Expr* inner = parse_tuple(Conditional::kAllowed, true);
  expect(")");
  return inner;
}

const Expr* Parser::parse_name() {
  const Token& token = next();
  const std::string& name = token.text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    Expr* expr = make(ExprKind::kConst, token.position);
    expr->constant = Value::of(name == "true" || name == "True");
    return expr;
  }
  if (name == "none" || name == "None") {
    Expr* expr = make(ExprKind::kConst, token.position);
    expr->constant = Value::none();
    return expr;
  }
  const bool in_macro =
      std::any_of(scopes_.begin(), scopes_.end(), [](const Scope& scope) { return scope.macro; });
  if (in_macro && (name == "varargs" || name == "kwargs" || name == "caller")) {
    fail_at(fmt::format("'{}' in a macro is not supported in chat templates", name),
            token.position);
  }
  Expr* expr = make(ExprKind::kName, token.position);
  expr->symbol = symbol(name);
  expr->constant = Value::of(text(name));
  read(expr->symbol);
  return expr;
}

const Expr* Parser::parse_string() {
  const Position position = peek().position;
  std::string value;
  while (peek().kind == TokenKind::kString) value += next().text;
  Expr* expr = make(ExprKind::kConst, position);
  expr->constant = Value::of(text(value));
  return expr;
}

const Expr* Parser::parse_number() {
  const Token& token = next();
  Expr* expr = make(ExprKind::kConst, token.position);
  const std::string& digits = token.text;
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    // from_chars leaves the value alone when it is out of range; strtod gives infinity or 0.
    if (value == 0) value = std::strtod(digits.c_str(), nullptr);
    expr->constant = Value::of(value);
    return expr;
  }
  const char prefix = digits.size() > 2 ? digits[1] : '0';
  const Int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
  Int value = 0;
  for (size_t i = base == 10 ? 0 : 2; i < digits.size(); ++i) {
    const int digit = digits[i] <= '9' ? digits[i] - '0' : (digits[i] | 0x20) - 'a' + 10;
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, Int{digit}, &value)) {
      fail_at("integer is too large", token.position);
    }
  }
  expr->constant = Value::of(value);
  return expr;
}

const Expr* Parser::parse_list() {
  Expr* list = make(ExprKind::kList, next().position);
  while (!skip_op("]")) {
    if (!list->operands.empty()) {
      expect(",");
      if (skip_op("]")) break;
    }
    add(*list, parse_expression());
  }
  return list;
}

const Expr* Parser::parse_dict() {
  Expr* dict = make(ExprKind::kDict, next().position);
  while (!skip_op("}")) {
    if (!dict->operands.empty()) {
      expect(",");
      if (skip_op("}")) break;
    }
    add(*dict, parse_expression());
    expect(":");
    add(*dict, parse_expression());
  }
  return dict;
}

const Expr* Parser::parse_postfix(const Expr* operand) {
  while (true) {
    if (peek().is(".")) {
      operand = parse_attribute(operand);
    } else if (peek().is("[")) {
      operand = parse_item(operand);
    } else if (peek().is("(")) {
      operand = parse_call(operand);
    } else {
      return operand;
    }
  }
}

// Functions that Jinja2 has and templates cannot use fail here, not when the call is reached.
const Expr* Parser::parse_call(const Expr* callee) {
  if (callee->kind == ExprKind::kName) {
    const std::string_view name = callee->constant.text();
    for (const std::string_view missing : {"cycler", "joiner", "lipsum", "super"}) {
      if (name == missing && program_.global[static_cast<size_t>(callee->symbol)]) {
        fail_at(fmt::format("function '{}' is not supported in chat templates", name),
                callee->position);
      }
    }
  }
  Expr* call = make(ExprKind::kCall, callee->position);
  add(*call, callee);
  parse_arguments(*call);
  return call;
}

const Expr* Parser::parse_filters(const Expr* operand) {
  while (true) {
    if (skip_op("|")) {
      operand = parse_filter(operand);
    } else if (peek().is_name("is")) {
      operand = parse_test(operand);
    } else if (peek().is("(")) {
      operand = parse_call(operand);
    } else {
      return operand;
    }
  }
}

const Expr* Parser::parse_filter(const Expr* operand) {
  const Position position = peek().position;
  const std::string name = expect_name();
  Expr* expr = make(ExprKind::kFilter, position);
  expr->filter = find_filter(name);
  if (expr->filter == nullptr) {
    fail_at(fmt::format("filter '{}' is not supported in chat templates", name), position);
  }
  add(*expr, operand);
  if (peek().is("(")) parse_arguments(*expr);
  return expr;
}

const Expr* Parser::parse_test(const Expr* operand) {
  next();
  const bool negated = skip_name("not");
  const Position position = peek().position;
  const std::string name = expect_name();
  Expr* expr = make(ExprKind::kTest, position);
  expr->test = find_test(name);
  if (expr->test == nullptr) {
    fail_at(fmt::format("test '{}' is not supported in chat templates", name), position);
  }
  add(*expr, operand);
  const Token& token = peek();
  const bool literal = token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
                       token.kind == TokenKind::kFloat || token.is("[") || token.is("{");
  const bool variable = token.kind == TokenKind::kName && token.text != "else" &&
                        token.text != "or" && token.text != "and";
  if (token.is("(")) {
    parse_arguments(*expr);
  } else if (literal || variable) {
    if (token.is_name("is")) fail("tests with 'is' cannot be chained");
    const Nesting nesting(*this);
    add(*expr, parse_postfix(parse_primary()));
  }
  if (!negated) return expr;
  Expr* inverse = make(ExprKind::kNot, position);
  add(*inverse, expr);
  return inverse;
}

const Expr* Parser::parse_attribute(const Expr* object) {
  const Position position = next().position;
  if (peek().kind == TokenKind::kInteger) {
    Expr* item = make(ExprKind::kItem, position);
    add(*item, object);
    add(*item, parse_number());
    return item;
  }
  Expr* expr = make(ExprKind::kAttribute, position);
  add(*expr, object);
  expr->constant = Value::of(text(expect_name()));
  return expr;
}

const Expr* Parser::parse_item(const Expr* object) {
  const Position position = next().position;
  const Expr* start = nullptr;
  if (peek().is("]")) fail("expected an index");
  if (!peek().is(":")) {
    start = parse_expression();
    if (peek().is(",")) fail("an index of several parts is not supported in chat templates");
    if (skip_op("]")) {
      Expr* item = make(ExprKind::kItem, position);
      add(*item, object);
      add(*item, start);
      return item;
    }
  }
  expect(":");
  Expr* slice = make(ExprKind::kSlice, position);
  add(*slice, object);
  add(*slice, start);
  add(*slice, peek().is(":") || peek().is("]") ? nullptr : parse_expression());
  const bool step = skip_op(":") && !peek().is("]");
  add(*slice, step ? parse_expression() : nullptr);
  expect("]");
  return slice;
}

void Parser::parse_arguments(Expr& call) {
  expect("(");
  bool first = true;
  while (!skip_op(")")) {
    if (!first) {
      expect(",");
      if (skip_op(")")) return;
    }
    first = false;
    if (call.operands.size() > kArgumentsMax) fail("the call has too many arguments");
    if (peek().is("*") || peek().is("**")) {
      fail("unpacked arguments are not supported in chat templates");
    }
    if (peek().kind == TokenKind::kName && peek(1).is("=")) {
      const Position position = peek().position;
      const std::string_view name = text(next().text)->text;
      next();
      if (std::find(call.names.begin(), call.names.end(), name) != call.names.end()) {
        fail_at(fmt::format("argument '{}' is given twice", name), position);
      }
      add(call, parse_expression());
      call.names.push_back(name);
    } else {
      if (!call.names.empty()) fail("a positional argument follows a named one");
      add(call, parse_expression());
    }
  }
}

}  // namespace exode::text::jinja
