#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace exode {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("exode",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    return made;
  }();
  return *instance;
}

void write(spdlog::level::level_enum level, std::string_view area, std::string_view text) {
  logger().log(level, "{} {}", area, text);
}

}  // namespace

void set_log_level(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  logger().set_level(kLevels[static_cast<int>(level)]);
}

void log_debug(std::string_view area, std::string_view text) {
  write(spdlog::level::debug, area, text);
}
void log_info(std::string_view area, std::string_view text) {
  write(spdlog::level::info, area, text);
}
void log_warn(std::string_view area, std::string_view text) {
  write(spdlog::level::warn, area, text);
}
void log_error(std::string_view area, std::string_view text) {
  write(spdlog::level::err, area, text);
}

}  // namespace exode
