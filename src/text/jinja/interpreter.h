// Walks a program over a context.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace exode::text::jinja {

// Variables of one block. Lookups go outwards, assignments stay inside.
struct Scope {
  struct Variable {
    int symbol;
    Value value;
  };
  Scope* parent;
  std::pmr::vector<Variable> variables;
  bool captured = false;  // a macro defined in it outlives the block

  Value* find(int symbol);
  void set(int symbol, const Value& value);
};

struct Macro {
  const Stmt* definition;
  Scope* scope;  // where it was defined
};

class Interpreter {
 public:
  // `context` is an object and outlives the interpreter.
  Interpreter(const Program& program, const nlohmann::ordered_json& context, const std::tm& now);

  // Throws RenderError; position() then tells where.
  const TextBuilder& run();
  Position position() const { return position_; }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  Flow run_body(const Body& body, Scope& scope);
  Flow run_statement(const Stmt& stmt, Scope& scope);
  Flow run_if(const Stmt& stmt, Scope& scope);
  void run_for(const Stmt& stmt, Scope& scope);
  void run_set(const Stmt& stmt, Scope& scope);
  void run_macro(const Stmt& stmt, Scope& scope);
  const Str* capture(const Body& body, Scope& scope);
  void assign(const Target& target, const Value& value, Scope& scope);
  Value apply_filters(const Expr* filter, const Value& input, Scope& scope);

  Value eval(const Expr& expr, Scope& scope);
  Value eval_name(const Expr& expr, Scope& scope);
  Value eval_list(const Expr& expr, Scope& scope);
  Value eval_dict(const Expr& expr, Scope& scope);
  Value eval_slice(const Expr& expr, Scope& scope);
  Value eval_call(const Expr& expr, Scope& scope);
  Value eval_filter(const Expr& expr, Scope& scope);
  Value eval_concat(const Expr& expr, Scope& scope);
  Value eval_compare(const Expr& expr, Scope& scope);
  Args eval_arguments(const Expr& expr, Scope& scope);
  Value call(const Value& callee, const Args& args);
  Value call_macro(const Macro& macro, const Args& args);
  Scope* open_scope(Scope* parent);
  Value context_value(int symbol, const Str* name);

  // Counts visits and their nesting for as long as it lives.
  class Visit {
   public:
    explicit Visit(Interpreter& interpreter) : interpreter_(interpreter) {
      interpreter_.runtime_.charge(1);
      if (++interpreter_.depth_ > kVisitDepthMax) fail("the template recurses too deeply");
    }
    ~Visit() { --interpreter_.depth_; }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    Interpreter& interpreter_;
  };

  const Program& program_;
  const nlohmann::ordered_json& context_;
  Runtime runtime_;
  std::vector<Value> globals_;  // by symbol, kAbsent until first read
  TextBuilder output_;
  TextBuilder* out_ = &output_;  // where text goes: the output or a capture
  Position position_;
  int depth_ = 0;
  int macro_depth_ = 0;
};

}  // namespace exode::text::jinja
