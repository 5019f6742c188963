#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "app/commands.h"
#include "base/log.h"

int main(int argc, char** argv) {
  using namespace exode;
  CLI::App app("exode: an engine and OpenAI-compatible server for hybrid language models");
  app.name("exode");
  app.set_version_flag("--version", std::string("exode ") + EXODE_VERSION);
  app.require_subcommand(1);
  std::string log_level = "info";
  app.add_option("--log-level", log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));

  struct Command {
    const char* name;
    app::Run (*add)(CLI::App&);
  };
  std::vector<std::pair<CLI::App*, app::Run>> commands;
  for (const auto& [name, add] : {Command{"serve", app::add_serve},
                                  {"chat", app::add_chat},
                                  {"generate", app::add_generate},
                                  {"eval", app::add_eval},
                                  {"inspect", app::add_inspect},
                                  {"bench", app::add_bench},
                                  {"plan", app::add_plan}}) {
    CLI::App* command = app.add_subcommand(name);
    command->fallthrough();
    commands.emplace_back(command, add(*command));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  set_log_level(log_level == "debug"  ? LogLevel::kDebug
                : log_level == "info" ? LogLevel::kInfo
                : log_level == "warn" ? LogLevel::kWarn
                                      : LogLevel::kError);
  for (const auto& [command, run] : commands) {
    if (!command->parsed()) continue;
    const Result<int> result = run();
    if (result.ok()) return result.value();
    fmt::print(stderr, "exode {}: {}\n", command->get_name(), result.error().message);
    return result.error().code == ErrorCode::kInvalidArgument ? 2 : 1;
  }
  return 2;
}
