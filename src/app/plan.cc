// exode plan: what a model would take on a device that need not be there.
#include "engine/plan.h"

#include <fmt/format.h>

#include <memory>
#include <thread>

#include "app/commands.h"
#include "app/device_facts.h"
#include "app/session.h"

namespace exode::app {
namespace {

struct Options {
  EngineOptions engine;
  std::string memory, device_facts = "rtx-5090m";
};

struct Target {
  Backend backend = Backend::kCuda;
  DeviceCaps caps;      // memory_bytes: what the plan may use
  size_t memory = 0;    // all of it
  size_t reserve = 0;   // the difference
  std::string kernels;  // whose workspace is planned
};

// A build without CUDA has no kernels to ask for their workspace.
Result<Target> make_target(const Options& o) {
  Target target;
  const bool has_cuda = has_kernels(Backend::kCuda);
  const bool automatic = o.engine.device == "auto";
  if (o.engine.device != "cpu" && !automatic && o.engine.device != "cuda") {
    return invalid(
        fmt::format("--device {} is not known to plan; use auto, cuda or cpu", o.engine.device));
  }
  if (o.engine.device == "cuda" && !has_cuda) {
    return unsupported(
        "this exode was built without CUDA and cannot plan the workspace of its kernels; build "
        "with './x build cuda-dev' (no GPU is needed), or leave --device out for a plan with the "
        "CPU kernels");
  }
  EXODE_ASSIGN(target.caps, load_device_facts(o.device_facts));
  EXODE_ASSIGN(const size_t memory, parse_bytes(o.memory));
  target.memory = memory > 0 ? memory : target.caps.memory_bytes;
  target.backend = o.engine.device == "cpu" || !has_cuda ? Backend::kCpu : Backend::kCuda;
  target.kernels = target.backend == Backend::kCuda ? "cuda" : "cpu";
  if (o.engine.device != "cpu") {
    target.reserve = kCudaReserve;
    if (!has_cuda) {
      target.kernels = "cpu (this build has no CUDA: the GPU's workspace and KV formats differ)";
    }
  } else {
    target.caps.name = "cpu";
  }
  if (target.backend == Backend::kCpu) {  // kernels keep scratch for each thread
    target.caps.multiprocessors = o.engine.threads > 0
                                      ? o.engine.threads
                                      : static_cast<int32_t>(std::thread::hardware_concurrency());
  }
  if (target.memory <= target.reserve) {
    return invalid(fmt::format("--memory {} does not even hold the CUDA context ({})", o.memory,
                               human_bytes(target.reserve)));
  }
  target.caps.memory_bytes = target.memory - target.reserve;
  return target;
}

void print_line(const std::string& what, size_t bytes, const std::string& note = {}) {
  fmt::print("  {:<20}{:>12}{}{}\n", what, human_bytes(bytes), note.empty() ? "" : "   ", note);
}

void print_report(const PlanReport& r, const Target& target, const EngineConfig& config) {
  fmt::print("model      {} ({})\n", config.synthetic.empty() ? config.model : config.synthetic,
             r.facts.family);
  fmt::print("device     {}, {}; kernels: {}\n", target.caps.name, human_bytes(target.memory),
             target.kernels);
  fmt::print("context    {} tokens in {}, {} sequences at once, {} rows a step\n", r.context,
             r.facts.kv_format, config.max_num_seqs, config.max_num_batched_tokens);
  if (target.reserve > 0) print_line("driver and context", target.reserve, "set aside");
  size_t total = target.reserve;
  for (const PlanLine& line : r.lines) {
    const std::string note =
        line.purpose == "kv cache" ? fmt::format("{} tokens", r.kv_tokens) : std::string();
    print_line(line.purpose, line.bytes, note);
    total += line.bytes;
  }
  if (r.lines.empty()) {
    fmt::print("does not fit: {}\n", r.refusal);
  } else {
    print_line("total", total);
    print_line("left", target.memory - total);
  }
  fmt::print("largest    {} tokens of one sequence fit; the model was made for {}\n", r.context_max,
             r.model_context_max);
}

Result<int> run(const Options& o) {
  EXODE_ASSIGN(const Target target, make_target(o));
  EXODE_ASSIGN(const EngineConfig config, make_engine_config(o.engine));
  EXODE_ASSIGN(const PlanReport report, plan_engine(config, target.backend, target.caps));
  print_report(report, target, config);
  return report.refusal.empty() ? 0 : 1;
}

}  // namespace

Run add_plan(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.description("Print the memory plan and the largest context, without a GPU");
  o->engine.device = "auto";
  add_engine_options(app, o->engine);
  add_synthetic_option(app, o->engine);
  app.add_option("--memory", o->memory,
                 "Memory of the device, for example 24GiB (default: as the facts say)");
  app.add_option("--device-facts", o->device_facts,
                 fmt::format("A JSON file, or one of {}", device_fact_names()))
      ->capture_default_str();
  return [o] { return run(*o); };
}

}  // namespace exode::app
