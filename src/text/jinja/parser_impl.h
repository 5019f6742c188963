// The parser's state, shared by parser.cc (statements) and parser_expr.cc (expressions). The
// precedence and the places where a condition is not allowed are those of Jinja2 3.1.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace exode::text::jinja {

class Parser {
 public:
  Parser(Program& program, std::vector<Token> tokens);
  void run();

 private:
  enum class Conditional : uint8_t { kAllowed, kExcluded };  // whether `a if b` may follow
  using Names = std::initializer_list<std::string_view>;

  // Tokens.
  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  void expect(std::string_view op);
  std::string expect_name();
  [[noreturn]] void fail(std::string message) const {
    fail_at(std::move(message), peek().position);
  }
  [[noreturn]] void fail_at(std::string message, Position position) const;

  // Statements.
  Body parse_body(Names ends);
  const Stmt* parse_statement();
  const Stmt* parse_output();
  const Stmt* parse_if();
  const Stmt* parse_for();
  const Stmt* parse_set();
  const Stmt* parse_macro();
  const Stmt* parse_filter_block();
  const Stmt* parse_generation();
  const Stmt* parse_loop_control();
  void parse_parameters(Stmt& macro);
  Target parse_target(bool attributes);
  int parse_target_name();
  void end_block();
  bool at_end(Names ends) const;

  // Expressions.
  const Expr* parse_expression(Conditional conditional = Conditional::kAllowed);
  const Expr* parse_tuple(Conditional conditional, bool parenthesized);
  const Expr* parse_conditional();
  const Expr* parse_or();
  const Expr* parse_and();
  const Expr* parse_not();
  const Expr* parse_compare();
  const Expr* parse_sum();
  const Expr* parse_concat();
  const Expr* parse_product();
  const Expr* parse_power();
  const Expr* parse_unary(bool with_filters);
  const Expr* parse_primary();
  const Expr* parse_name();
  const Expr* parse_number();
  const Expr* parse_string();
  const Expr* parse_list();
  const Expr* parse_dict();
  const Expr* parse_postfix(const Expr* operand);
  const Expr* parse_call(const Expr* callee);
  const Expr* parse_filters(const Expr* operand);
  const Expr* parse_filter(const Expr* operand);
  const Expr* parse_test(const Expr* operand);
  const Expr* parse_attribute(const Expr* object);
  const Expr* parse_item(const Expr* object);
  void parse_arguments(Expr& call);

  // Nodes.
  Expr* make(ExprKind kind, Position position);
  void add(Expr& expr, const Expr* operand);  // operand may be null
  Expr* binary(ExprKind kind, Op op, const Expr* left, const Expr* right);
  const Str* text(std::string_view value);

  // Scopes: what is assigned where, to know which names come from the context.
  int symbol(std::string_view name);
  void read(int symbol);
  void assign(int symbol) { scopes_.back().names.insert(symbol); }
  void open_scope(bool macro) { scopes_.push_back({{}, macro}); }
  void close_scope() { scopes_.pop_back(); }
  void finish_scopes();

  struct Scope {
    std::set<int> names;
    bool macro;
  };
  // Counts nesting for as long as it lives.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kParseDepthMax) parser_.fail("the template is nested too deeply");
    }
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  Program& program_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // for bodies around the current statement, inside the current macro
  std::vector<Scope> scopes_;
  std::set<int> read_in_macros_;  // global unless the outermost scope assigns them later
};

std::string describe(const Token& token);

}  // namespace exode::text::jinja
