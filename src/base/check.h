// Assertions about our own bugs: they stay on in release builds and abort with place and message.
//
//   EXODE_CHECK(rows <= capacity, fmt::format("rows {} > capacity {}", rows, capacity));
//
// For what the world can cause (files, requests, memory) use Result (base/result.h) instead.
#pragma once

#include <string_view>

namespace exode {
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               std::string_view message);
}  // namespace exode

#define EXODE_CHECK(condition, message)                                 \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::exode::check_failed(#condition, __FILE__, __LINE__, (message)); \
  } while (false)
