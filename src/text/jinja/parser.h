// Source to Program. Throws SyntaxError for anything outside the supported language, so that a
// template that compiles cannot fail later for a missing feature.
#pragma once

#include <memory>
#include <string_view>

#include "text/jinja/ast.h"

namespace exode::text::jinja {

std::unique_ptr<Program> parse(std::string_view source);

}  // namespace exode::text::jinja
