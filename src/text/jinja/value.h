// Values of the template language with Python semantics. Small and copied freely; everything they
// point to lives in an Arena, in the parsed program, or in the JSON context, all of which outlive
// the render.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/arena.h"
#include "text/jinja/error.h"

namespace exode::text::jinja {

// Wide enough that every integer of JSON is exact; overflow is an error, not a wrap.
__extension__ typedef __int128 Int;

// End of a stretch of one origin inside a string.
struct Mark {
  size_t end;
  bool literal;  // template text; else data of the caller
};

struct Str {
  std::string_view text;  // UTF-8
  bool literal = true;    // meaningless when marks is not empty
  std::span<const Mark> marks = {};
  mutable int64_t points = -1;  // code points, -1: not counted yet
  bool safe = false;            // through the filter `safe`: what + adds to it is escaped for HTML

  bool has_data() const { return !marks.empty() || !literal; }
  int64_t length() const;
};

enum class Kind : uint8_t {
  kAbsent,  // an argument that was not given; never visible to templates
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kDict,
  kNamespace,
  kMacro,
  kMethod,
  kFunction,
  kLoop,
};

struct List;
struct Dict;
struct Macro;
struct Method;
struct Function;
struct Loop;

struct Value {
  Kind kind = Kind::kUndefined;
  // Of an undefined value: what lacks the attribute `str`; kUndefined when `str` is a variable.
  Kind owner = Kind::kUndefined;
  union {
    bool boolean;
    Int integer;
    double real;
    const Str* str = nullptr;  // kString; the missing name of kUndefined, may be null there
    List* list;
    Dict* dict;  // kDict and kNamespace
    const Macro* macro;
    const Method* method;
    const Function* function;
    const Loop* loop;
  };

  bool is(Kind k) const { return kind == k; }
  bool is_number() const {
    return kind == Kind::kBool || kind == Kind::kInt || kind == Kind::kFloat;
  }
  bool is_integral() const { return kind == Kind::kBool || kind == Kind::kInt; }
  Int as_int() const { return kind == Kind::kBool ? Int{boolean} : integer; }
  double as_real() const { return kind == Kind::kFloat ? real : static_cast<double>(as_int()); }
  std::string_view text() const { return str->text; }

  static Value none();
  static Value absent();
  static Value undefined(const Str* name, Kind owner = Kind::kUndefined);
  static Value of(bool value);
  static Value of(Int value);
  static Value of(int64_t value) { return of(Int{value}); }
  static Value of(double value);
  static Value of(const Str* value);
  static Value of(List* value);
  static Value of(Dict* value);
};

// What Python distinguishes among the things that hold a sequence of values.
enum class Form : uint8_t { kList, kTuple, kRange, kGenerator, kKeys, kValues, kItems };

struct List {
  std::pmr::vector<Value> items;
  Form form = Form::kList;
  bool from_context = false;  // inputs are immutable
  bool consumed = false;      // a generator gives its items once
};

struct Dict {
  struct Entry {
    Value key;
    Value value;
  };
  explicit Dict(std::pmr::memory_resource* memory) : entries(memory), slots(memory) {}

  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;  // throws RenderError when the key is not hashable
  void set(const Value& key, const Value& value);

  std::pmr::vector<Entry> entries;  // insertion order
  bool from_context = false;

 private:
  int64_t find_index(const Value& key, size_t hash) const;
  int64_t find_text(std::string_view key, size_t hash) const;
  void rebuild();
  std::pmr::vector<int32_t> slots;  // open addressing over entries, empty while small
};

struct Args {
  struct Named {
    std::string_view name;
    Value value;
  };
  std::vector<Value> positional;
  std::vector<Named> named;
};

[[noreturn]] void fail(std::string message);

// The kind as Python names it, for messages.
std::string_view type_name(const Value& value);
std::string undefined_message(const Value& value);
[[noreturn]] void fail_undefined(const Value& value);

bool truthy(const Value& value);
// Python ==. Numbers compare across bool, int and float.
bool equals(const Value& a, const Value& b, int depth = 0);
bool same(const Value& a, const Value& b);  // Python `is`
size_t hash_of(const Value& value);
size_t hash_text(std::string_view text);

}  // namespace exode::text::jinja
