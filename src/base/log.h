// One line per fact on stderr: "level area key=value …". Nothing is logged inside ops or per token.
//
//   log_info("engine", fmt::format("kv_tokens={} blocks={}", tokens, blocks));
#pragma once

#include <string_view>

namespace exode {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarn, kError };

void set_log_level(LogLevel level);
void log_debug(std::string_view area, std::string_view text);
void log_info(std::string_view area, std::string_view text);
void log_warn(std::string_view area, std::string_view text);
void log_error(std::string_view area, std::string_view text);

}  // namespace exode
