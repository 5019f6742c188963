// exode inspect: what a checkpoint holds, without running it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>

#include "app/commands.h"
#include "app/session.h"
#include "weights/checkpoint.h"

namespace exode::app {
namespace {

struct Options {
  std::string model;
  bool tensors = false;
};

void print_tensors(const Checkpoint& checkpoint, bool every) {
  std::map<std::string_view, std::pair<int64_t, uint64_t>> by_dtype;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    auto& [count, bytes] = by_dtype[file_dtype_name(tensor.dtype)];
    ++count;
    bytes += tensor.data.size();
    if (every) fmt::print("{:<70} {:<8} {}\n", name, file_dtype_name(tensor.dtype), tensor.shape);
  }
  fmt::print("tensors    {} in {:.1f} MiB\n", checkpoint.tensors().size(),
             static_cast<double>(checkpoint.file_bytes()) / 0x1p20);
  for (const auto& [dtype, total] : by_dtype) {
    fmt::print("  {:<8} {:>6} tensors {:>12.1f} MiB\n", dtype, total.first,
               static_cast<double>(total.second) / 0x1p20);
  }
}

void print_text(const ModelFiles& files) {
  if (!files.tokenizer) {
    fmt::print("tokenizer  none\n");
    return;
  }
  std::string stops;
  for (TokenId id : files.generation.stop_tokens) {
    stops += fmt::format(" {} '{}'", id, files.tokenizer->token_bytes(id));
  }
  fmt::print("tokenizer  {} tokens; stops at{}\n", files.tokenizer->size(), stops);
  const SamplingParams p = default_sampling(files.generation);
  fmt::print("sampling   temperature {}, top_p {}, top_k {}, min_p {}, repetition_penalty {}\n",
             p.temperature, p.top_p, p.top_k, p.min_p, p.repetition_penalty);
  const auto source = text::ChatTemplate::find_source(files.directory, false);
  if (!source.ok()) {
    fmt::print("template   {}\n", source.error().message);
    return;
  }
  const auto compiled = text::ChatTemplate::compile(source.value());
  if (compiled.ok()) {
    fmt::print("template   reads {}\n", fmt::join(compiled.value().variables(), ", "));
  } else {
    fmt::print("template   {}\n", compiled.error().message);
  }
}

Result<int> run(const Options& o) {
  EXODE_ASSIGN(const std::string directory, resolve_model(o.model));
  EXODE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(directory));
  EXODE_ASSIGN(const ModelFiles files, open_model_files(directory));
  const nlohmann::json& config = checkpoint.config();
  fmt::print("folder     {}\n", directory);
  fmt::print("model_type {}\n", config.value("model_type", std::string("missing")));
  if (const auto q = config.find("quantization_config"); q != config.end()) {
    fmt::print("quantised  {}\n", q->dump());
  }
  print_tensors(checkpoint, o.tensors);
  print_text(files);
  EngineConfig engine_config;
  engine_config.model = directory;
  EXODE_ASSIGN(auto engine, open_engine(engine_config, files));
  fmt::print("\n{}", startup_report(engine->facts(), directory));
  return 0;
}

}  // namespace

Run add_inspect(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.description("Show what a checkpoint holds and how it would be loaded");
  app.add_option("MODEL", o->model, "Checkpoint folder (default: the demo model)");
  app.add_flag("--tensors", o->tensors, "List every tensor");
  return [o] { return run(*o); };
}

}  // namespace exode::app
