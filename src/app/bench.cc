// exode bench: tokens a second, and where the time goes.
#include "engine/bench.h"

#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "app/bench_report.h"
#include "app/commands.h"
#include "app/options.h"
#include "base/log.h"

namespace exode::app {
namespace {

constexpr int32_t kCudaChunk = 2048;  // rows of a prompt step: large enough for full speed

struct Options {
  EngineOptions engine;
  BenchOptions bench;
  std::string out;
};

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return io_error(fmt::format("cannot write {}", path));
  return Done{};
}

Result<int> run(Options o, bool has_chunk) {
  if (!has_chunk && o.engine.device.starts_with("cuda")) {
    o.engine.max_num_batched_tokens = kCudaChunk;
  }
  EXODE_ASSIGN(const EngineConfig config, make_engine_config(o.engine));
  o.bench.progress = [](const std::string& what) { log_info("bench", what); };
  EXODE_ASSIGN(const BenchReport report, run_bench(config, o.bench));
  const std::string model = config.synthetic.empty() ? config.model : config.synthetic;
  fmt::print("{}", bench_text(report, model));
  if (!o.out.empty()) {
    EXODE_TRY(write_text(o.out, bench_json(report, model).dump(1) + "\n"));
  }
  return 0;
}

}  // namespace

Run add_bench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.description("Measure decode, prefill, every op and the device's bandwidth");
  add_engine_options(app, o->engine);
  add_synthetic_option(app, o->engine);
  app.add_option("--contexts", o->bench.contexts, "Tokens before the measured ones: 0,32768")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--rows", o->bench.rows, "Sequences that decode at once: 1,4,8")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--prefill", o->bench.prefill, "Prompt lengths: 4096,32768")->delimiter(',');
  app.add_option("--steps", o->bench.steps, "Measured steps of each decode")->capture_default_str();
  app.add_option("--out", o->out, "Also write everything as JSON to this file");
  const CLI::Option* chunk = app.get_option("--max-num-batched-tokens");
  return [o, chunk] { return run(*o, chunk->count() > 0); };
}

}  // namespace exode::app
