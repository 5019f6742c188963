// Failure inside the template engine. Thrown only within src/text/jinja and turned into a Result at
// its two entry points (chat_template.cc): a tree walker that checks a status after every operand
// would be twice as long.
#pragma once

#include <cstdint>
#include <string>

namespace exode::text::jinja {

struct Position {
  uint32_t line = 1;
  uint32_t column = 1;  // in code points
};

// Source text that does not compile.
struct SyntaxError {
  std::string message;
  Position position;
};

// A failing operation; the interpreter knows the position.
struct RenderError {
  std::string message;
  bool raised_by_template = false;  // raise_exception: the message is the template's own
};

}  // namespace exode::text::jinja
