#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja/unicode_text.h"
#include "text/unicode.h"

namespace exode::text::jinja {
namespace {

constexpr std::array<std::string_view, 6> kLongOperators = {"==", "!=", "<=", ">=", "//", "**"};
constexpr std::string_view kOperators = "+-*/%~<>=()[]{}|.,:";

std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_text();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) { throw SyntaxError{std::move(message), position()}; }

  // Position of at_; called with growing offsets.
  Position position() {
    for (; counted_ < at_; ++counted_) {
      const char c = source_[counted_];
      if (c == '\n') {
        ++position_.line;
        position_.column = 1;
      } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
        ++position_.column;
      }
    }
    return position_;
  }

  void add(TokenKind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), position()});
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  size_t find_tag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] != '{') continue;
      if (const char c = source_[i + 1]; c == '{' || c == '%' || c == '#') return i;
    }
    return std::string::npos;
  }

  // Text up to the next tag, then that tag.
  void lex_text() {
    const size_t tag = find_tag();
    const size_t end = tag == std::string::npos ? source_.size() : tag;
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    char sign = 0;
    char type = 0;
    if (tag != std::string::npos) {
      type = source_[tag + 1];
      const char next = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      if (next == '-' || next == '+') sign = next;
      if (sign == '-') {
        text = trim_right(text);
      } else if (sign == 0 && type != '{') {
        text = strip_line_start(text);
      }
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
    at_ = end;
    if (tag == std::string::npos) return;
    const TokenKind begin = type == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin;
    if (type != '#') add(begin, "");
    at_ += sign == 0 ? 2 : 3;
    if (type == '#') {
      skip_comment();
    } else {
      lex_tag(type == '{' ? "}}" : "%}");
    }
  }

  // lstrip_blocks: white space between the line start and a block tag or comment.
  std::string_view strip_line_start(std::string_view text) const {
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starts_) return text;
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    return trim_right(text.substr(line)).empty() ? text.substr(0, line) : text;
  }

  void skip_comment() {
    const size_t close = source_.find("#}", at_);
    if (close == std::string::npos) fail("comment is not closed: '#}' is missing");
    const char sign = close > at_ ? source_[close - 1] : '\0';
    at_ = close;
    close_tag(sign);
  }

  // Consumes the two closing characters at at_ and the white space that the marker before them
  // or trim_blocks removes.
  void close_tag(char sign) {
    const bool variable = source_[at_] == '}';
    at_ += 2;
    const size_t before = at_;
    if (sign == '-') {
      at_ += rest().size() - trim_left(rest()).size();
    } else if (sign != '+' && !variable && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
    line_starts_ = at_ > before && source_[at_ - 1] == '\n';
  }

  void lex_tag(std::string_view close) {
    std::string open;  // brackets not yet closed: tag ends inside them are operators
    while (true) {
      at_ += rest().size() - trim_left(rest()).size();
      if (at_ >= source_.size()) {
        fail(fmt::format("tag is not closed: '{}' is missing", close));
      }
      if (open.empty()) {
        const char c = source_[at_];
        const bool marker =
            (c == '-' || (c == '+' && close == "%}")) && rest().substr(1).substr(0, 2) == close;
        if (marker || rest().substr(0, 2) == close) {
          add(close == "}}" ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          if (marker) ++at_;
          close_tag(marker ? c : '\0');
          return;
        }
      }
      lex_token(open);
    }
  }

  void lex_token(std::string& open) {
    const char c = source_[at_];
    if (is_name_start(c)) return lex_name();
    if (is_digit(c)) return lex_number();
    if (c == '"' || c == '\'') return lex_string();
    for (const std::string_view op : kLongOperators) {
      if (rest().substr(0, 2) == op) {
        add(TokenKind::kOperator, std::string(op));
        at_ += 2;
        return;
      }
    }
    if (kOperators.find(c) == std::string_view::npos) {
      fail(fmt::format("unexpected character '{}'", c));
    }
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(fmt::format("unexpected '{}'", c));
      if (open.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c));
    ++at_;
  }

  void lex_name() {
    size_t end = at_;
    while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
    add(TokenKind::kName, source_.substr(at_, end - at_));
    at_ = end;
  }

  // Digits of `base` with single underscores between them; moves `end` past them.
  void take_digits(size_t& end, int base, std::string& digits) const {
    const auto is_base_digit = [&](char c) {
      const int lower = c | 0x20;
      const int value = is_digit(c)                    ? c - '0'
                        : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                                       : 99;
      return value < base;
    };
    while (end < source_.size()) {
      const bool gap =
          source_[end] == '_' && end + 1 < source_.size() && is_base_digit(source_[end + 1]);
      if (gap) ++end;
      if (!is_base_digit(source_[end])) return;
      digits += source_[end++];
    }
  }

  void lex_number() {
    size_t end = at_;
    std::string digits;
    const char kind = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    if (source_[at_] == '0' && (kind == 'x' || kind == 'o' || kind == 'b')) {
      end += 2;
      digits = {'0', kind};
      take_digits(end, kind == 'x' ? 16 : kind == 'o' ? 8 : 2, digits);
      if (digits.size() == 2) fail("number without digits");
      add(TokenKind::kInteger, std::move(digits));
      at_ = end;
      return;
    }
    take_digits(end, 10, digits);
    const bool fraction = end + 1 < source_.size() && source_[end] == '.' &&
                          is_digit(source_[end + 1]) && !follows_dot();
    if (fraction) {
      digits += source_[end++];
      take_digits(end, 10, digits);
    }
    const bool exponent = take_exponent(end, digits);
    add(fraction || exponent ? TokenKind::kFloat : TokenKind::kInteger, std::move(digits));
    at_ = end;
  }

  // In a.0.1 the digits after a dot are an index, not the start of a fraction.
  bool follows_dot() const { return at_ > 0 && source_[at_ - 1] == '.'; }

  bool take_exponent(size_t& end, std::string& digits) const {
    size_t i = end;
    if (i >= source_.size() || (source_[i] | 0x20) != 'e') return false;
    ++i;
    if (i < source_.size() && (source_[i] == '+' || source_[i] == '-')) ++i;
    if (i >= source_.size() || !is_digit(source_[i])) return false;
    digits += source_.substr(end, i - end);
    end = i;
    take_digits(end, 10, digits);
    return true;
  }

  void lex_string() {
    const char quote = source_[at_];
    std::string value;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] != '\\') {
        value += source_[i++];
      } else {
        unescape(i, value);
      }
    }
    if (i >= source_.size()) fail("string is not closed");
    add(TokenKind::kString, std::move(value));
    at_ = i + 1;
  }

  // `i` is at a backslash; moves past the escape. Unknown escapes stay as written, as in Python.
  void unescape(size_t& i, std::string& out) {
    constexpr std::string_view kNames = "abfnrtv\\'\"";
    constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    if (i + 1 >= source_.size()) fail("string is not closed");
    const char c = source_[i + 1];
    i += 2;
    if (const size_t at = kNames.find(c); at != std::string_view::npos) {
      out += kValues[at];
    } else if (c == '\n') {
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_utf8(take_code(i, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, true), out);
    } else if (c >= '0' && c <= '7') {
      --i;
      append_utf8(take_code(i, 3, 8, false), out);
    } else if (c == 'N') {
      fail("\\N{...} in strings is not supported: write the character");
    } else {
      out += '\\';
      --i;
      const int length = std::max(1, utf8_length(std::string_view(source_).substr(i)));
      out.append(source_, i, static_cast<size_t>(length));
      i += static_cast<size_t>(length);
    }
  }

  uint32_t take_code(size_t& i, int digits_max, uint32_t base, bool exact) {
    uint32_t code = 0;
    int count = 0;
    for (; count < digits_max && i < source_.size(); ++count, ++i) {
      const char c = source_[i];
      const int lower = c | 0x20;
      const uint32_t digit = is_digit(c) ? static_cast<uint32_t>(c - '0')
                             : lower >= 'a' && lower <= 'f'
                                 ? static_cast<uint32_t>(lower - 'a' + 10)
                                 : 99;
      if (digit >= base) break;
      code = code * base + digit;
    }
    if (exact && count < digits_max) fail("string escape with too few digits");
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail("string escape is not a Unicode character");
    }
    return code;
  }

  std::string source_;
  size_t at_ = 0;
  size_t counted_ = 0;  // position_ is that of this offset
  Position position_;
  bool line_starts_ = true;  // whether at_ starts a line, for lstrip_blocks
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace exode::text::jinja
