#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja/parser_impl.h"

namespace exode::text::jinja {
namespace {

constexpr std::array<std::string_view, 4> kFunctions = {"range", "namespace", "dict",
                                                        "raise_exception"};

bool is_global_function(std::string_view name) {
  return std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end() ||
         name == "strftime_now";
}

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "number " + token.text;
    default:
      return fmt::format("'{}'", token.text);
  }
}

std::unique_ptr<Program> parse(std::string_view source) {
  auto program = std::make_unique<Program>();
  Parser(*program, tokenize(source)).run();
  return program;
}

Parser::Parser(Program& program, std::vector<Token> tokens)
    : program_(program), tokens_(std::move(tokens)) {}

void Parser::run() {
  program_.loop_symbol = symbol("loop");
  open_scope(false);
  program_.body = parse_body({});
  finish_scopes();
}

void Parser::fail_at(std::string message, Position position) const {
  throw SyntaxError{std::move(message), position};
}

bool Parser::skip_name(std::string_view name) {
  if (!peek().is_name(name)) return false;
  next();
  return true;
}

bool Parser::skip_op(std::string_view op) {
  if (!peek().is(op)) return false;
  next();
  return true;
}

void Parser::expect(std::string_view op) {
  if (!skip_op(op)) fail(fmt::format("expected '{}', got {}", op, describe(peek())));
}

std::string Parser::expect_name() {
  if (peek().kind != TokenKind::kName) {
    fail(fmt::format("expected a name, got {}", describe(peek())));
  }
  return next().text;
}

void Parser::end_block() {
  if (peek().kind != TokenKind::kBlockEnd) {
    fail(fmt::format("expected '%}}', got {}", describe(peek())));
  }
  next();
}

bool Parser::at_end(Names ends) const {
  return peek().kind == TokenKind::kBlockBegin &&
         std::any_of(ends.begin(), ends.end(),
                     [this](std::string_view name) { return peek(1).is_name(name); });
}

// Statements up to one of the end tags, whose '{%' is consumed and whose name is not.
Body Parser::parse_body(Names ends) {
  const Nesting nesting(*this);
  Body body(program_.arena.memory());
  while (true) {
    const Token& token = peek();
    if (token.kind == TokenKind::kEnd) {
      if (ends.size() == 0) return body;
      fail(fmt::format("'{}' is missing", *(ends.end() - 1)));
    }
    if (at_end(ends)) {
      next();
      return body;
    }
    body.push_back(parse_statement());
  }
}

const Stmt* Parser::parse_statement() {
  const Token& token = next();
  if (token.kind == TokenKind::kData) {
    Stmt* stmt =
        program_.arena.make<Stmt>(StmtKind::kText, token.position, program_.arena.memory());
    stmt->text = text(token.text);
    return stmt;
  }
  if (token.kind == TokenKind::kVariableBegin) return parse_output();
  if (peek().kind != TokenKind::kName) fail("expected the name of a statement");
  const std::string& name = peek().text;
  if (name == "if") return parse_if();
  if (name == "for") return parse_for();
  if (name == "set") return parse_set();
  if (name == "macro") return parse_macro();
  if (name == "filter") return parse_filter_block();
  if (name == "generation") return parse_generation();
  if (name == "break" || name == "continue") return parse_loop_control();
  if (name.starts_with("end") || name == "else" || name == "elif") {
    fail(fmt::format("'{}' has no statement to end", name));
  }
  fail(fmt::format("statement '{}' is not supported in chat templates", name));
}

const Stmt* Parser::parse_output() {
  Stmt* stmt =
      program_.arena.make<Stmt>(StmtKind::kOutput, peek().position, program_.arena.memory());
  stmt->value = parse_tuple(Conditional::kAllowed, false);
  if (peek().kind != TokenKind::kVariableEnd) {
    fail(fmt::format("expected '}}}}', got {}", describe(peek())));
  }
  next();
  return stmt;
}

const Stmt* Parser::parse_if() {
  Stmt* stmt = program_.arena.make<Stmt>(StmtKind::kIf, peek().position, program_.arena.memory());
  next();
  while (true) {
    const Expr* condition = parse_tuple(Conditional::kExcluded, false);
    end_block();
    stmt->branches.push_back({condition, parse_body({"elif", "else", "endif"})});
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      end_block();
      stmt->branches.push_back({nullptr, parse_body({"endif"})});
    }
    next();
    end_block();
    return stmt;
  }
}

const Stmt* Parser::parse_for() {
  Stmt* stmt = program_.arena.make<Stmt>(StmtKind::kFor, peek().position, program_.arena.memory());
  next();
  // The iterated value is read outside the scope of the loop's names.
  open_scope(false);
  stmt->target = parse_target(false);
  const Scope inner = scopes_.back();
  close_scope();
  if (!skip_name("in")) fail(fmt::format("expected 'in', got {}", describe(peek())));
  stmt->value = parse_tuple(Conditional::kExcluded, false);
  scopes_.push_back(inner);
  if (skip_name("if")) stmt->condition = parse_expression();
  if (peek().is_name("recursive")) fail("'recursive' loops are not supported in chat templates");
  end_block();
  assign(program_.loop_symbol);
  ++loops_;
  stmt->body = parse_body({"else", "endfor"});
  --loops_;
  close_scope();
  if (skip_name("else")) {
    end_block();
    open_scope(false);
    stmt->otherwise = parse_body({"endfor"});
    close_scope();
  }
  next();
  end_block();
  return stmt;
}

int Parser::parse_target_name() {
  const Position position = peek().position;
  const std::string name = expect_name();
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
    if (name == word) fail_at(fmt::format("cannot assign to '{}'", name), position);
  }
  return symbol(name);
}

Target Parser::parse_target(bool attributes) {
  Target target{std::pmr::vector<int>(program_.arena.memory())};
  const bool parenthesized = skip_op("(");
  while (true) {
    if (!target.symbols.empty() && (peek().is_name("in") || peek().is("=") || peek().is(")")))
      break;
    target.symbols.push_back(parse_target_name());
    if (attributes && target.symbols.size() == 1 && skip_op(".")) {
      read(target.symbols[0]);
      target.attribute = text(expect_name());
      return target;
    }
    if (!skip_op(",")) break;
    target.unpack = true;
  }
  if (parenthesized) expect(")");
  for (const int name : target.symbols) assign(name);
  return target;
}

const Stmt* Parser::parse_set() {
  const Position position = next().position;
  // Names of the target count as assigned only after the value that may read them.
  const Scope before = scopes_.back();
  Target target = parse_target(true);
  if (skip_op("=")) {
    Stmt* stmt = program_.arena.make<Stmt>(StmtKind::kSet, position, program_.arena.memory());
    const Scope after = scopes_.back();
    scopes_.back() = before;
    stmt->target = std::move(target);
    stmt->value = parse_tuple(Conditional::kAllowed, false);
    scopes_.back() = after;
    end_block();
    return stmt;
  }
  Stmt* stmt = program_.arena.make<Stmt>(StmtKind::kSetBlock, position, program_.arena.memory());
  stmt->target = std::move(target);
  if (skip_op("|")) {
    stmt->value = parse_filter(nullptr);
    while (skip_op("|")) stmt->value = parse_filter(stmt->value);
  }
  end_block();
  open_scope(false);
  stmt->body = parse_body({"endset"});
  close_scope();
  next();
  end_block();
  return stmt;
}

void Parser::parse_parameters(Stmt& macro) {
  expect("(");
  bool optional = false;
  while (!peek().is(")")) {
    if (!macro.parameters.empty()) expect(",");
    const Position position = peek().position;
    const int name = parse_target_name();
    Parameter parameter{name, text(program_.symbols[static_cast<size_t>(name)])->text, nullptr};
    if (skip_op("=")) {
      parameter.fallback = parse_expression();
      optional = true;
    } else if (optional) {
      fail_at("a parameter without default follows one with default", position);
    }
    assign(name);
    macro.parameters.push_back(parameter);
  }
  next();
}

const Stmt* Parser::parse_macro() {
  Stmt* stmt =
      program_.arena.make<Stmt>(StmtKind::kMacro, peek().position, program_.arena.memory());
  next();
  const int name = parse_target_name();
  stmt->target.symbols.push_back(name);
  stmt->text = text(program_.symbols[static_cast<size_t>(name)]);
  assign(name);
  open_scope(true);
  parse_parameters(*stmt);
  end_block();
  const int loops_outside = loops_;
  loops_ = 0;
  stmt->body = parse_body({"endmacro"});
  loops_ = loops_outside;
  close_scope();
  next();
  end_block();
  return stmt;
}

const Stmt* Parser::parse_filter_block() {
  Stmt* stmt =
      program_.arena.make<Stmt>(StmtKind::kFilterBlock, peek().position, program_.arena.memory());
  next();
  stmt->value = parse_filter(nullptr);
  while (skip_op("|")) stmt->value = parse_filter(stmt->value);
  end_block();
  open_scope(false);
  stmt->body = parse_body({"endfilter"});
  close_scope();
  next();
  end_block();
  return stmt;
}

// Marks the assistant's part for training; the server only renders it.
const Stmt* Parser::parse_generation() {
  Stmt* stmt =
      program_.arena.make<Stmt>(StmtKind::kGeneration, peek().position, program_.arena.memory());
  next();
  end_block();
  open_scope(false);
  const int loops_outside = loops_;
  loops_ = 0;
  stmt->body = parse_body({"endgeneration"});
  loops_ = loops_outside;
  close_scope();
  next();
  end_block();
  return stmt;
}

const Stmt* Parser::parse_loop_control() {
  const Token& token = next();
  if (loops_ == 0) fail_at(fmt::format("'{}' outside a loop", token.text), token.position);
  const StmtKind kind = token.text == "break" ? StmtKind::kBreak : StmtKind::kContinue;
  Stmt* stmt = program_.arena.make<Stmt>(kind, token.position, program_.arena.memory());
  end_block();
  return stmt;
}

int Parser::symbol(std::string_view name) {
  const auto [it, added] =
      program_.symbol_of.try_emplace(std::string(name), static_cast<int>(program_.symbols.size()));
  if (added) {
    program_.symbols.emplace_back(name);
    program_.global.push_back(false);
  }
  return it->second;
}

void Parser::read(int name) {
  bool in_macro = false;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (scope->names.contains(name)) return;
    in_macro = in_macro || scope->macro;
  }
  if (is_global_function(program_.symbols[static_cast<size_t>(name)])) return;
  if (in_macro) {
    read_in_macros_.insert(name);
  } else {
    program_.global[static_cast<size_t>(name)] = true;
  }
}

void Parser::finish_scopes() {
  for (const int name : read_in_macros_) {
    if (!scopes_.front().names.contains(name)) program_.global[static_cast<size_t>(name)] = true;
  }
}

}  // namespace exode::text::jinja
