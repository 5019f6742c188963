// One function per subcommand: declares its options and returns what runs it. The integer is the
// exit code: 0 done, 1 failed, 2 bad usage, 130 interrupted.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace exode::app {

using Run = std::function<Result<int>()>;

Run add_serve(CLI::App& app);
Run add_chat(CLI::App& app);
Run add_generate(CLI::App& app);
Run add_eval(CLI::App& app);
Run add_inspect(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_plan(CLI::App& app);

// Set by SIGINT and SIGTERM once install_interrupt_handler() ran.
void install_interrupt_handler();
bool interrupted();

}  // namespace exode::app
