// What every operation of a render shares: memory, the work limit, the clock. Also the helpers with
// which filters, tests, methods and functions take their arguments and make their results.
#pragma once

#include <array>
#include <ctime>
#include <span>
#include <string>
#include <string_view>

#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace exode::text::jinja {

class Runtime {
 public:
  explicit Runtime(const std::tm& now) : arena_(kArenaBytesMax), now_(now) {}

  Arena& arena() { return arena_; }
  const std::tm& now() const { return now_; }

  // Throws RenderError once the render has done too much work.
  void charge(int64_t steps) {
    steps_ += steps;
    if (steps_ > kStepsMax) fail("the template does too much work");
  }
  void charge_items(size_t count) { charge(static_cast<int64_t>(count) / kItemsPerStep); }
  void charge_bytes(size_t count) { charge(static_cast<int64_t>(count) / kBytesPerStep); }

  // `text` must outlive the render.
  const Str* view(std::string_view text, bool literal) { return arena_.make<Str>(text, literal); }
  const Str* copy(std::string_view text, bool literal);
  List* list(Form form = Form::kList) {
    return arena_.make<List>(std::pmr::vector<Value>(arena_.memory()), form);
  }
  Dict* dict() { return arena_.make<Dict>(arena_.memory()); }
  Value pair(const Value& first, const Value& second);

 private:
  Arena arena_;
  std::tm now_;
  int64_t steps_ = 0;
};

// Text under construction, with the origin of its parts.
class TextBuilder {
 public:
  void append(std::string_view text, bool literal);
  void append(const Str& str);
  const Str* finish(Runtime& runtime) const;
  const std::string& text() const { return text_; }
  std::span<const Mark> marks() const { return marks_; }

 private:
  std::string text_;
  std::vector<Mark> marks_;
};

// Strings. Parts of a string keep their origin exactly.
const Str* substr(Runtime& runtime, const Str& str, size_t begin, size_t end);  // bytes
const Str* part(Runtime& runtime, const Str& str, std::string_view inside);
const Str* concat(Runtime& runtime, const Str& a, const Str& b);
// The operator +, which escapes what it adds to a safe string.
const Str* add(Runtime& runtime, const Str& a, const Str& b);
const Str* make_safe(Runtime& runtime, const Str& str);

// Python str() and repr().
const Str* to_str(Runtime& runtime, const Value& value);
std::string repr(Runtime& runtime, const Value& value, bool& has_data);
std::string format_real(double value);
std::string format_int(Int value);

// The items of anything that can be iterated. Valid until the end of the render. Consumes a
// generator.
std::span<const Value> iterate(Runtime& runtime, const Value& value);
int64_t length_of(const Value& value);

// Attribute first, then key (a.b); and key first, then attribute (a["b"]).
Value get_attribute(Runtime& runtime, const Value& object, const Str& name);
Value get_item(Runtime& runtime, const Value& object, const Value& key);
Value get_slice(Runtime& runtime, const Value& object, std::span<const Value, 3> bounds);
// "a.b.0" of the filters that take an attribute.
Value get_path(Runtime& runtime, Value object, const Value& path);

bool contains(Runtime& runtime, const Value& container, const Value& item);
// -1, 0, 1. Throws for values without an order.
int compare(Runtime& runtime, const Value& a, const Value& b, int depth = 0);

// Arguments.
void bind_values(const Args& args, std::string_view who, std::span<const std::string_view> names,
                 size_t required, std::span<Value> out);

// The values for `names` in order, kAbsent where none is given.
template <size_t N>
std::array<Value, N> take_args(const Args& args, std::string_view who,
                               const std::array<std::string_view, N>& names, size_t required) {
  std::array<Value, N> out;
  bind_values(args, who, names, required, out);
  return out;
}
inline void bind_none(const Args& args, std::string_view who) { bind_values(args, who, {}, 0, {}); }
Int require_int(const Value& value, std::string_view who);
const Str& require_str(const Value& value, std::string_view who);

}  // namespace exode::text::jinja
