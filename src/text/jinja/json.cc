#include "text/jinja/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/unicode_text.h"

namespace exode::text::jinja {
namespace {

using nlohmann::ordered_json;

enum class Source : uint8_t { kContext, kParsed };

class Converter {
 public:
  Converter(Runtime& runtime, Source source, bool literal)
      : runtime_(runtime), source_(source), literal_(literal) {}

  Value convert(const ordered_json& json, int depth) {
    if (depth > kValueDepthMax) fail("a value of the input is nested too deeply");
    switch (json.type()) {
      case ordered_json::value_t::boolean:
        return Value::of(json.get<bool>());
      case ordered_json::value_t::number_integer:
        return Value::of(Int{json.get<int64_t>()});
      case ordered_json::value_t::number_unsigned:
        return Value::of(Int{json.get<uint64_t>()});
      case ordered_json::value_t::number_float:
        return Value::of(json.get<double>());
      case ordered_json::value_t::string:
        return Value::of(text(json.get_ref<const std::string&>()));
      case ordered_json::value_t::array: {
        List* list = runtime_.list();
        list->from_context = source_ == Source::kContext;
        list->items.reserve(json.size());
        for (const ordered_json& item : json) list->items.push_back(convert(item, depth + 1));
        return Value::of(list);
      }
      case ordered_json::value_t::object: {
        Dict* dict = runtime_.dict();
        dict->from_context = source_ == Source::kContext;
        dict->entries.reserve(json.size());
        for (const auto& [key, value] : json.items()) {
          dict->set(Value::of(text(key)), convert(value, depth + 1));
        }
        return Value::of(dict);
      }
      default:
        return Value::none();
    }
  }

 private:
  const Str* text(const std::string& value) {
    return source_ == Source::kContext ? runtime_.view(value, literal_)
                                       : runtime_.copy(value, literal_);
  }

  Runtime& runtime_;
  Source source_;
  bool literal_;
};

class Dumper {
 public:
  Dumper(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value, int depth) {
    runtime_.charge_items(1);
    if (depth > kValueDepthMax) fail("tojson: the value is nested too deeply");
    if (out.size() > kOutputBytesMax) fail("tojson: the value is too large");
    switch (value.kind) {
      case Kind::kString:
        write_text(*value.str);
        return;
      case Kind::kDict:
        write_dict(*value.dict, depth);
        return;
      case Kind::kList:
        if (value.list->form != Form::kList && value.list->form != Form::kTuple) break;
        write_list(*value.list, depth);
        return;
      case Kind::kUndefined:
        fail(fmt::format("tojson: {}", undefined_message(value)));
      default:
        if (const std::string text = scalar(value); !text.empty()) {
          out += text;
          return;
        }
    }
    fail(fmt::format("tojson: a {} is not a JSON value", type_name(value)));
  }

  std::string out;
  bool has_data = false;

 private:
  static std::string scalar(const Value& value) {
    switch (value.kind) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return value.boolean ? "true" : "false";
      case Kind::kInt:
        return format_int(value.integer);
      case Kind::kFloat:
        if (std::isnan(value.real)) return "NaN";
        if (std::isinf(value.real)) return value.real < 0 ? "-Infinity" : "Infinity";
        return format_real(value.real);
      default:
        return {};
    }
  }

  void newline(int depth) {
    if (style_.indent == nullptr) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) out += style_.indent->text;
  }

  void write_list(const List& list, int depth) {
    out += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      newline(depth + 1);
      write(list.items[i], depth + 1);
    }
    if (!list.items.empty()) newline(depth);
    out += ']';
  }

  void write_key(const Value& key) {
    if (key.is(Kind::kString)) return write_text(*key.str);
    const std::string text = scalar(key);
    if (text.empty()) fail(fmt::format("tojson: a {} cannot be a key", type_name(key)));
    out += '"' + text + '"';
  }

  void write_dict(const Dict& dict, int depth) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return compare(runtime_, a->key, b->key) < 0;
      });
    }
    out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      newline(depth + 1);
      write_key(entries[i]->key);
      out += style_.key_separator;
      write(entries[i]->value, depth + 1);
    }
    if (!entries.empty()) newline(depth);
    out += '}';
  }

  void write_unicode(uint32_t c) {
    if (c >= 0x10000) {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10),
                         0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out += fmt::format("\\u{:04x}", c);
    }
  }

  void write_text(const Str& str) {
    has_data = has_data || str.has_data();
    runtime_.charge_bytes(str.text.size());
    const std::string_view text = str.text;
    out += '"';
    size_t plain = 0;  // start of what needs no escape
    for (size_t at = 0; at < text.size();) {
      const size_t start = at;
      const auto byte = static_cast<unsigned char>(text[at]);
      const bool as_is = style_.ensure_ascii ? byte >= 0x20 && byte < 0x7F : byte >= 0x20;
      if (as_is && byte != '"' && byte != '\\') {
        ++at;
        continue;
      }
      out += text.substr(plain, start - plain);
      const uint32_t c = take_code_point(text, at);
      constexpr std::string_view kShort = "\"\\\n\r\t\b\f";
      constexpr std::string_view kLetters = "\"\\nrtbf";
      const size_t known = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
      if (known != std::string_view::npos) {
        out += '\\';
        out += kLetters[known];
      } else {
        write_unicode(c);
      }
      plain = at;
    }
    out += text.substr(plain);
    out += '"';
  }

  Runtime& runtime_;
  const JsonStyle& style_;
};

// Nesting that the recursive conversion and the parser's own destructor can bear.
bool nests_deeply(std::string_view text) {
  int depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kValueDepthMax) return true;
  }
  return false;
}

}  // namespace

Value from_context(Runtime& runtime, const ordered_json& json) {
  return Converter(runtime, Source::kContext, false).convert(json, 0);
}

Value parse_json(Runtime& runtime, const Str& text) {
  runtime.charge_bytes(text.text.size());
  if (nests_deeply(text.text)) fail("from_json: the value is nested too deeply");
  const ordered_json json = ordered_json::parse(text.text, nullptr, false);
  if (json.is_discarded()) fail("from_json: the text is not JSON");
  return Converter(runtime, Source::kParsed, !text.has_data()).convert(json, 0);
}

const Str* to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  Dumper dumper(runtime, style);
  dumper.write(value, 0);
  return runtime.copy(dumper.out, !dumper.has_data);
}

}  // namespace exode::text::jinja
