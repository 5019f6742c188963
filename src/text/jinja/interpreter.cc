#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja/arithmetic.h"
#include "text/jinja/filters.h"
#include "text/jinja/functions.h"
#include "text/jinja/json.h"
#include "text/jinja/loop.h"

namespace exode::text::jinja {

Value* Scope::find(int symbol) {
  for (Variable& variable : variables) {
    if (variable.symbol == symbol) return &variable.value;
  }
  return nullptr;
}

void Scope::set(int symbol, const Value& value) {
  if (Value* old = find(symbol)) {
    *old = value;
  } else {
    variables.push_back({symbol, value});
  }
}

Interpreter::Interpreter(const Program& program, const nlohmann::ordered_json& context,
                         const std::tm& now)
    : program_(program),
      context_(context),
      runtime_(now),
      globals_(program.symbols.size(), Value::absent()) {}

const TextBuilder& Interpreter::run() {
  run_body(program_.body, *open_scope(nullptr));
  return output_;
}

Scope* Interpreter::open_scope(Scope* parent) {
  Arena& arena = runtime_.arena();
  return arena.make<Scope>(parent, std::pmr::vector<Scope::Variable>(arena.memory()));
}

Interpreter::Flow Interpreter::run_body(const Body& body, Scope& scope) {
  for (const Stmt* stmt : body) {
    if (const Flow flow = run_statement(*stmt, scope); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(const Stmt& stmt, Scope& scope) {
  const Visit visit(*this);
  position_ = stmt.position;
  switch (stmt.kind) {
    case StmtKind::kText:
      out_->append(*stmt.text);
      break;
    case StmtKind::kOutput: {
      const Value value = eval(*stmt.value, scope);
      out_->append(*to_str(runtime_, value));
      break;
    }
    case StmtKind::kIf:
      return run_if(stmt, scope);
    case StmtKind::kFor:
      run_for(stmt, scope);
      break;
    case StmtKind::kSet:
      run_set(stmt, scope);
      break;
    case StmtKind::kMacro:
      run_macro(stmt, scope);
      break;
    case StmtKind::kSetBlock: {
      const Value text = Value::of(capture(stmt.body, scope));
      assign(stmt.target, apply_filters(stmt.value, text, scope), scope);
      break;
    }
    case StmtKind::kFilterBlock: {
      const Value text = Value::of(capture(stmt.body, scope));
      out_->append(*to_str(runtime_, apply_filters(stmt.value, text, scope)));
      break;
    }
    case StmtKind::kGeneration:
      return run_body(stmt.body, *open_scope(&scope));
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt, Scope& scope) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition == nullptr || truthy(eval(*branch.condition, scope))) {
      return run_body(branch.body, scope);
    }
  }
  return Flow::kNext;
}

void Interpreter::run_for(const Stmt& stmt, Scope& scope) {
  const Value source = eval(*stmt.value, scope);
  position_ = stmt.position;
  std::span<const Value> items = iterate(runtime_, source);
  Scope* inner = open_scope(&scope);
  if (stmt.condition != nullptr) {
    // The loop counts only what the condition keeps.
    List* kept = runtime_.list();
    for (const Value& item : items) {
      assign(stmt.target, item, *inner);
      if (truthy(eval(*stmt.condition, *inner))) kept->items.push_back(item);
    }
    items = kept->items;
  }
  if (items.empty()) {
    run_body(stmt.otherwise, *open_scope(&scope));
    return;
  }
  Loop* loop = runtime_.arena().make<Loop>(items);
  Value loop_value;
  loop_value.kind = Kind::kLoop;
  loop_value.loop = loop;
  for (loop->index = 0; loop->index < items.size(); ++loop->index) {
    runtime_.charge(1);
    if (inner->captured) inner = open_scope(&scope);
    inner->variables.clear();
    inner->set(program_.loop_symbol, loop_value);
    position_ = stmt.position;
    assign(stmt.target, items[loop->index], *inner);
    if (run_body(stmt.body, *inner) == Flow::kBreak) break;
  }
}

void Interpreter::run_set(const Stmt& stmt, Scope& scope) {
  const Value value = eval(*stmt.value, scope);
  position_ = stmt.position;
  assign(stmt.target, value, scope);
}

void Interpreter::run_macro(const Stmt& stmt, Scope& scope) {
  for (Scope* s = &scope; s != nullptr; s = s->parent) s->captured = true;
  Value value;
  value.kind = Kind::kMacro;
  value.macro = runtime_.arena().make<Macro>(&stmt, &scope);
  scope.set(stmt.target.symbols[0], value);
}

const Str* Interpreter::capture(const Body& body, Scope& scope) {
  TextBuilder text;
  TextBuilder* outer = std::exchange(out_, &text);
  run_body(body, *open_scope(&scope));
  out_ = outer;
  return text.finish(runtime_);
}

void Interpreter::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.attribute != nullptr) {
    const Str name{program_.symbols[static_cast<size_t>(target.symbols[0])]};
    Value object = Value::undefined(&name);
    for (Scope* s = &scope; s != nullptr; s = s->parent) {
      if (const Value* found = s->find(target.symbols[0])) {
        object = *found;
        break;
      }
    }
    set_attribute(object, *target.attribute, value);
    return;
  }
  if (!target.unpack) {
    scope.set(target.symbols[0], value);
    return;
  }
  const std::span<const Value> parts = iterate(runtime_, value);
  if (parts.size() != target.symbols.size()) {
    fail(fmt::format("{} values cannot be unpacked into {} names", parts.size(),
                     target.symbols.size()));
  }
  for (size_t i = 0; i < parts.size(); ++i) scope.set(target.symbols[i], parts[i]);
}

Value Interpreter::apply_filters(const Expr* filter, const Value& input, Scope& scope) {
  if (filter == nullptr) return input;
  const Value inner = apply_filters(filter->operands[0], input, scope);
  const Args args = eval_arguments(*filter, scope);
  position_ = filter->position;
  return filter->filter->call(runtime_, inner, args);
}

// A variable that no block assigns: of the context, else a function.
Value Interpreter::context_value(int symbol, const Str* name) {
  Value& slot = globals_[static_cast<size_t>(symbol)];
  if (!slot.is(Kind::kAbsent)) return slot;
  const auto it = context_.find(std::string(name->text));
  slot = it != context_.end() ? from_context(runtime_, *it) : find_function(name->text);
  if (slot.is(Kind::kUndefined)) slot = Value::undefined(name);
  return slot;
}

Value Interpreter::call_macro(const Macro& macro, const Args& args) {
  const Stmt& definition = *macro.definition;
  const std::string_view name = definition.text->text;
  if (++macro_depth_ > kMacroDepthMax) fail("macros recurse too deeply");
  if (args.positional.size() > definition.parameters.size()) {
    fail(fmt::format("macro '{}' takes at most {} arguments, {} given", name,
                     definition.parameters.size(), args.positional.size()));
  }
  for (const Args::Named& named : args.named) {
    const auto it = std::find_if(definition.parameters.begin(), definition.parameters.end(),
                                 [&](const Parameter& p) { return p.name == named.name; });
    if (it == definition.parameters.end()) {
      fail(fmt::format("macro '{}' has no argument '{}'", name, named.name));
    }
    if (it - definition.parameters.begin() < static_cast<ptrdiff_t>(args.positional.size())) {
      fail(fmt::format("macro '{}': argument '{}' is given twice", name, named.name));
    }
  }
  Scope& scope = *open_scope(macro.scope);
  for (size_t i = 0; i < definition.parameters.size(); ++i) {
    const Parameter& parameter = definition.parameters[i];
    const auto named = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const auto& n) { return n.name == parameter.name; });
    Value value = Value::undefined(runtime_.view(parameter.name, true));
    if (i < args.positional.size()) {
      value = args.positional[i];
    } else if (named != args.named.end()) {
      value = named->value;
    } else if (parameter.fallback != nullptr) {
      value = eval(*parameter.fallback, scope);
    }
    scope.set(parameter.symbol, value);
  }
  TextBuilder text;
  TextBuilder* outer = std::exchange(out_, &text);
  run_body(definition.body, scope);
  out_ = outer;
  --macro_depth_;
  return Value::of(text.finish(runtime_));
}

}  // namespace exode::text::jinja
