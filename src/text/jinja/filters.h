#pragma once

#include "text/jinja/runtime.h"

namespace exode::text::jinja {

struct Filter {
  std::string_view name;
  Value (*call)(Runtime&, const Value& input, const Args&);
};

// Null when templates may not use the name.
const Filter* find_filter(std::string_view name);

std::span<const Filter> text_filters();      // filters_text.cc
std::span<const Filter> sequence_filters();  // filters_sequence.cc

}  // namespace exode::text::jinja
