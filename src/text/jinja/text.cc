#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode_text.h"

namespace exode::text::jinja {

const Str* Runtime::copy(std::string_view text, bool literal) {
  charge_bytes(text.size());
  return view(arena_.copy(text), literal);
}

Value Runtime::pair(const Value& first, const Value& second) {
  List* tuple = list(Form::kTuple);
  tuple->items.reserve(2);
  tuple->items.push_back(first);
  tuple->items.push_back(second);
  return Value::of(tuple);
}

void TextBuilder::append(std::string_view text, bool literal) {
  if (text.empty()) return;
  if (text_.size() + text.size() > kOutputBytesMax) {
    fail(fmt::format("the output exceeds {} MiB", kOutputBytesMax >> 20));
  }
  text_ += text;
  if (!marks_.empty() && marks_.back().literal == literal) {
    marks_.back().end = text_.size();
  } else {
    marks_.push_back({text_.size(), literal});
  }
}

void TextBuilder::append(const Str& str) {
  if (str.marks.empty()) return append(str.text, str.literal);
  size_t begin = 0;
  for (const Mark& mark : str.marks) {
    append(str.text.substr(begin, mark.end - begin), mark.literal);
    begin = mark.end;
  }
}

const Str* TextBuilder::finish(Runtime& runtime) const {
  const std::string_view text = runtime.arena().copy(text_);
  runtime.charge_bytes(text.size());
  if (marks_.size() <= 1) return runtime.view(text, marks_.empty() || marks_[0].literal);
  auto* marks = static_cast<Mark*>(
      runtime.arena().memory()->allocate(marks_.size() * sizeof(Mark), alignof(Mark)));
  std::copy(marks_.begin(), marks_.end(), marks);
  return runtime.arena().make<Str>(text, true, std::span<const Mark>(marks, marks_.size()));
}

const Str* make_safe(Runtime& runtime, const Str& str) {
  Str* out = runtime.arena().make<Str>(str);
  out->safe = true;
  return out;
}

const Str* escape_html(Runtime& runtime, const Str& str) {
  if (str.safe) return &str;
  runtime.charge_bytes(str.text.size());
  TextBuilder out;
  size_t begin = 0;
  for (size_t at = 0; at < str.text.size(); ++at) {
    constexpr std::string_view kSpecial = "&<>'\"";
    constexpr std::string_view kEntities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const size_t found = kSpecial.find(str.text[at]);
    if (found == std::string_view::npos) continue;
    out.append(*substr(runtime, str, begin, at));
    out.append(kEntities[found], !substr(runtime, str, at, at + 1)->has_data());
    begin = at + 1;
  }
  if (begin == 0) return &str;
  out.append(*substr(runtime, str, begin, str.text.size()));
  return out.finish(runtime);
}

const Str* substr(Runtime& runtime, const Str& str, size_t begin, size_t end) {
  if (begin == 0 && end == str.text.size()) return &str;
  if (str.safe) {
    Str plain = str;
    plain.safe = false;
    return make_safe(runtime, *substr(runtime, plain, begin, end));
  }
  const std::string_view text = str.text.substr(begin, end - begin);
  if (str.marks.empty()) return runtime.view(text, str.literal);
  const auto after = [](size_t at, const Mark& mark) { return at < mark.end; };
  const auto first = std::upper_bound(str.marks.begin(), str.marks.end(), begin, after);
  if (first == str.marks.end() || first->end >= end) {
    return runtime.view(text, first == str.marks.end() || first->literal);
  }
  std::pmr::vector<Mark> marks(runtime.arena().memory());
  for (auto mark = first; mark != str.marks.end(); ++mark) {
    marks.push_back({std::min(mark->end, end) - begin, mark->literal});
    if (mark->end >= end) break;
  }
  auto* kept = runtime.arena().make<std::pmr::vector<Mark>>(std::move(marks));
  return runtime.arena().make<Str>(text, true, std::span<const Mark>(*kept));
}

const Str* part(Runtime& runtime, const Str& str, std::string_view inside) {
  const auto begin = static_cast<size_t>(inside.data() - str.text.data());
  return substr(runtime, str, begin, begin + inside.size());
}

const Str* add(Runtime& runtime, const Str& a, const Str& b) {
  if (!a.safe && !b.safe) return concat(runtime, a, b);
  const Str& left = *escape_html(runtime, a);
  return make_safe(runtime, *concat(runtime, left, *escape_html(runtime, b)));
}

const Str* concat(Runtime& runtime, const Str& a, const Str& b) {
  if (a.text.empty()) return &b;
  if (b.text.empty()) return &a;
  if (a.text.size() + b.text.size() > kOutputBytesMax) fail("a string becomes too long");
  const bool uniform = a.marks.empty() && b.marks.empty() && a.literal == b.literal;
  if (!uniform) {
    TextBuilder builder;
    builder.append(a);
    builder.append(b);
    return builder.finish(runtime);
  }
  const size_t size = a.text.size() + b.text.size();
  runtime.charge_bytes(size);
  char* out = runtime.arena().bytes(size);
  a.text.copy(out, a.text.size());
  b.text.copy(out + a.text.size(), b.text.size());
  return runtime.view({out, size}, a.literal);
}

void bind_values(const Args& args, std::string_view who, std::span<const std::string_view> names,
                 size_t required, std::span<Value> out) {
  if (args.positional.size() > names.size()) {
    fail(fmt::format("{} takes at most {} arguments, {} given", who, names.size(),
                     args.positional.size()));
  }
  std::fill(out.begin(), out.end(), Value::absent());
  std::copy(args.positional.begin(), args.positional.end(), out.begin());
  for (const Args::Named& named : args.named) {
    const auto it = std::find(names.begin(), names.end(), named.name);
    if (it == names.end()) fail(fmt::format("{} has no argument '{}'", who, named.name));
    Value& slot = out[static_cast<size_t>(it - names.begin())];
    if (!slot.is(Kind::kAbsent)) fail(fmt::format("{}: '{}' is given twice", who, named.name));
    slot = named.value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (out[i].is(Kind::kAbsent)) fail(fmt::format("{} needs argument '{}'", who, names[i]));
  }
}

Int require_int(const Value& value, std::string_view who) {
  if (value.is(Kind::kUndefined)) fail_undefined(value);
  if (!value.is_integral()) {
    fail(fmt::format("{} needs an integer, not {}", who, type_name(value)));
  }
  return value.as_int();
}

const Str& require_str(const Value& value, std::string_view who) {
  if (value.is(Kind::kUndefined)) fail_undefined(value);
  if (!value.is(Kind::kString))
    fail(fmt::format("{} needs a string, not {}", who, type_name(value)));
  return *value.str;
}

}  // namespace exode::text::jinja
