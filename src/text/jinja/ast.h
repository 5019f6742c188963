// Parsed template. Nodes live in the program's arena and are immutable during a render.
#pragma once

#include <memory_resource>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace exode::text::jinja {

struct Filter;
struct Test;

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,       // operands: key, value, key, value, …
  kAttribute,  // operands: object; text: name
  kItem,       // operands: object, index
  kSlice,      // operands: object, start, stop, step; each but the first may be null
  kCall,       // operands: callee, positional…, named…
  kFilter,     // operands: input (null in a filter block), positional…, named…
  kTest,       // the same
  kNegate,
  kPlus,
  kNot,
  kAnd,
  kOr,
  kConditional,  // operands: condition, then, else or null
  kConcat,
  kBinary,
  kCompare,  // operands: a, b, c…; compares: one operator between each two
};

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr {
  Expr(ExprKind k, Position p, std::pmr::memory_resource* memory)
      : kind(k), position(p), operands(memory), names(memory), compares(memory) {}

  ExprKind kind;
  Op op = Op::kAdd;
  Position position;
  int depth = 1;   // height of the tree
  int symbol = 0;  // kName
  Value constant;  // kConst; kName, kAttribute: the name as a string
  const Filter* filter = nullptr;
  const Test* test = nullptr;
  std::pmr::vector<const Expr*> operands;
  std::pmr::vector<std::string_view> names;  // of the last operands of a call
  std::pmr::vector<Op> compares;
};

enum class StmtKind : uint8_t {
  kText,
  kOutput,
  kIf,  // branches: condition (null for else) and body
  kFor,
  kSet,       // target = value
  kSetBlock,  // target = body through filters
  kMacro,
  kFilterBlock,
  kGeneration,
  kBreak,
  kContinue,
};

struct Stmt;
using Body = std::pmr::vector<const Stmt*>;

struct Branch {
  const Expr* condition;
  Body body;
};

// Names that a for or set assigns: one, several (unpacked), or an attribute of a namespace.
struct Target {
  std::pmr::vector<int> symbols;
  bool unpack = false;
  const Str* attribute = nullptr;
};

struct Parameter {
  int symbol;
  std::string_view name;
  const Expr* fallback;  // null: required
};

struct Stmt {
  Stmt(StmtKind k, Position p, std::pmr::memory_resource* memory)
      : kind(k),
        position(p),
        target{std::pmr::vector<int>(memory)},
        branches(memory),
        body(memory),
        otherwise(memory),
        parameters(memory) {}

  StmtKind kind;
  Position position;
  const Str* text = nullptr;        // kText; kMacro: its name
  const Expr* value = nullptr;      // output, iterated or assigned value; filters of a block
  const Expr* condition = nullptr;  // for … if
  Target target;
  std::pmr::vector<Branch> branches;
  Body body;
  Body otherwise;  // for … else
  std::pmr::vector<Parameter> parameters;
};

struct Program {
  Program() : arena(kArenaBytesMax), body(arena.memory()) {}

  Arena arena;
  Body body;
  std::vector<std::string> symbols;  // names by index
  std::unordered_map<std::string, int> symbol_of;
  std::vector<bool> global;  // by symbol: read where the template has not assigned it
  int loop_symbol = 0;
};

}  // namespace exode::text::jinja
