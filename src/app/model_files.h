// What a command needs from a model folder besides the weights.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "engine/api.h"
#include "text/chat_template.h"
#include "text/generation_config.h"
#include "text/tokenizer.h"

namespace exode::app {

struct ModelFiles {
  std::string directory;
  std::optional<text::Tokenizer> tokenizer;  // absent when the folder has no tokenizer.json
  text::GenerationConfig generation;
};

Result<ModelFiles> open_model_files(const std::string& directory);

// The folder of the demo model that ships with exode: beside the installed binary, or in the
// source tree it was built from.
Result<std::string> demo_model_directory();
// `model` as given, or the demo model when empty. kNotFound names the folder.
Result<std::string> resolve_model(const std::string& model);

// Sampling defaults of the checkpoint where the command line gave nothing.
SamplingParams default_sampling(const text::GenerationConfig& generation);

}  // namespace exode::app
