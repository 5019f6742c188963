#include "app/model_files.h"

#include <fmt/format.h>

#include <filesystem>

namespace exode::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDemoName = "exode-demo-int4";

}  // namespace

Result<ModelFiles> open_model_files(const std::string& directory) {
  ModelFiles files;
  files.directory = directory;
  std::error_code ignored;
  if (fs::exists(fs::path(directory) / "tokenizer.json", ignored)) {
    EXODE_ASSIGN(files.tokenizer, text::Tokenizer::load(directory));
  }
  EXODE_ASSIGN(files.generation, text::load_generation_config(
                                     directory, files.tokenizer ? &*files.tokenizer : nullptr));
  return files;
}

Result<std::string> demo_model_directory() {
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  for (const fs::path& folder : {binary.parent_path() / "../share/exode/models" / kDemoName,
                                 fs::path(EXODE_SOURCE_MODELS) / kDemoName}) {
    if (fs::exists(folder / "config.json", error))
      return fs::weakly_canonical(folder, error).string();
  }
  return not_found(
      fmt::format("the demo model {} is neither installed nor in {}; name a model folder",
                  kDemoName, EXODE_SOURCE_MODELS));
}

Result<std::string> resolve_model(const std::string& model) {
  if (model.empty()) return demo_model_directory();
  std::error_code error;
  if (!fs::is_directory(model, error)) {
    return not_found(
        fmt::format("{} is not a folder; give the path of a Hugging Face checkpoint", model));
  }
  return model;
}

SamplingParams default_sampling(const text::GenerationConfig& generation) {
  SamplingParams p;
  p.temperature = generation.temperature.value_or(p.temperature);
  p.top_p = generation.top_p.value_or(p.top_p);
  p.min_p = generation.min_p.value_or(p.min_p);
  p.top_k = generation.top_k.value_or(p.top_k);
  p.repetition_penalty = generation.repetition_penalty.value_or(p.repetition_penalty);
  return p;
}

}  // namespace exode::app
