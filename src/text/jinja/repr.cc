// Python's str() and repr().
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode_text.h"
#include "text/unicode.h"

namespace exode::text::jinja {
namespace {

// Python switches to exponents outside 1e-4 … 1e16.
constexpr int kExponentMin = -4;
constexpr int kExponentMax = 16;

void append_escape(uint32_t c, std::string& out) {
  if (c < 0x100) {
    out += fmt::format("\\x{:02x}", c);
  } else if (c < 0x10000) {
    out += fmt::format("\\u{:04x}", c);
  } else {
    out += fmt::format("\\U{:08x}", c);
  }
}

std::string repr_text(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const uint32_t c = take_code_point(text, at);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(start, at - start);
    } else {
      append_escape(c, out);
    }
  }
  return out + quote;
}

class Writer {
 public:
  explicit Writer(Runtime& runtime) : runtime_(runtime) {}

  void write(const Value& value, int depth) {
    runtime_.charge_items(1);
    if (depth > kValueDepthMax) fail("a value is nested too deeply to print");
    if (out.size() > kOutputBytesMax) fail("a value is too large to print");
    switch (value.kind) {
      case Kind::kAbsent:
        break;
      case Kind::kUndefined:
        out += "Undefined";
        break;
      case Kind::kNone:
        out += "None";
        break;
      case Kind::kBool:
        out += value.boolean ? "True" : "False";
        break;
      case Kind::kInt:
        out += format_int(value.integer);
        break;
      case Kind::kFloat:
        out += format_real(value.real);
        break;
      case Kind::kString:
        out += repr_text(value.text());
        has_data = has_data || value.str->has_data();
        break;
      case Kind::kList:
        write_list(*value.list, depth);
        break;
      case Kind::kDict:
        write_dict(*value.dict, depth);
        break;
      case Kind::kNamespace:
        out += "<Namespace ";
        write_dict(*value.dict, depth);
        out += '>';
        break;
      default:
        out += fmt::format("<{}>", type_name(value));
        break;
    }
  }

  std::string out;
  bool has_data = false;

 private:
  void write_items(const List& list, int depth) {
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out += ", ";
      write(list.items[i], depth + 1);
    }
  }

  void write_range(const List& list) {
    // An empty or one-item range does not tell its bounds; Python prints those it was made with.
    const auto& items = list.items;
    const Int first = items.empty() ? 0 : items.front().integer;
    const Int step = items.size() < 2 ? 1 : items[1].integer - first;
    const Int stop = items.empty() ? 0 : items.back().integer + step;
    out += fmt::format("range({}, {}", format_int(first), format_int(stop));
    out += step == 1 ? ")" : fmt::format(", {})", format_int(step));
  }

  void write_list(const List& list, int depth) {
    switch (list.form) {
      case Form::kGenerator:
        out += "<generator object>";
        return;
      case Form::kRange:
        write_range(list);
        return;
      case Form::kList:
        out += '[';
        write_items(list, depth);
        out += ']';
        return;
      case Form::kTuple:
        out += '(';
        write_items(list, depth);
        out += list.items.size() == 1 ? ",)" : ")";
        return;
      default:
        break;
    }
    out += list.form == Form::kKeys     ? "dict_keys(["
           : list.form == Form::kValues ? "dict_values(["
                                        : "dict_items([";
    write_items(list, depth);
    out += "])";
  }

  void write_dict(const Dict& dict, int depth) {
    out += '{';
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out += ", ";
      write(dict.entries[i].key, depth + 1);
      out += ": ";
      write(dict.entries[i].value, depth + 1);
    }
    out += '}';
  }

  Runtime& runtime_;
};

}  // namespace

std::string format_int(Int value) { return fmt::format("{}", value); }

std::string format_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = negative ? "-" : "";
  if (exponent < kExponentMin || exponent >= kExponentMax) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string repr(Runtime& runtime, const Value& value, bool& has_data) {
  Writer writer(runtime);
  writer.write(value, 0);
  has_data = has_data || writer.has_data;
  return std::move(writer.out);
}

const Str* to_str(Runtime& runtime, const Value& value) {
  if (value.is(Kind::kString)) return value.str;
  if (value.is(Kind::kUndefined)) return runtime.view("", true);
  if (value.is(Kind::kBool)) return runtime.view(value.boolean ? "True" : "False", true);
  if (value.is(Kind::kNone)) return runtime.view("None", true);
  bool has_data = false;
  const std::string text = repr(runtime, value, has_data);
  return runtime.copy(text, !has_data);
}

}  // namespace exode::text::jinja
