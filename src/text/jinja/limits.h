// Bounds of the template engine: templates and their inputs come from outside. Recursion bounds
// keep the worst case below 2 MiB of stack.
#pragma once

#include <cstddef>
#include <cstdint>

namespace exode::text::jinja {

constexpr size_t kSourceBytesMax = size_t{4} << 20;
constexpr int kParseDepthMax = 200;    // nesting of expressions and of statements
constexpr int kChainDepthMax = 400;    // left-deep chains: a + b + c, a.b.c
constexpr size_t kArgumentsMax = 100;  // of one call; map('map', 'map', …) nests by its arguments
constexpr int kMacroDepthMax = 200;
constexpr int kVisitDepthMax = 2000;  // nested evaluator visits, all macros together
constexpr int kValueDepthMax = 200;   // nesting of a list or mapping
constexpr int64_t kStepsMax = 2'000'000;
constexpr int64_t kBytesPerStep = 512;  // scanning that much text or 32 items counts as one visit
constexpr int64_t kItemsPerStep = 32;
constexpr int64_t kRangeMax = 100'000;
constexpr size_t kOutputBytesMax = size_t{64} << 20;
constexpr size_t kArenaBytesMax = size_t{512} << 20;  // everything one render allocates

}  // namespace exode::text::jinja
