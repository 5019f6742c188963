// Splits template source into text and tag tokens with the whitespace rules of trim_blocks,
// lstrip_blocks and the `-` and `+` markers applied. Line ends are normalised to \n and one final
// newline is dropped, as Jinja2 does without keep_trailing_newline.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/error.h"

namespace exode::text::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  // text is the unescaped value
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  Position position;

  bool is(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// Ends with a kEnd token. `source` is valid UTF-8. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace exode::text::jinja
