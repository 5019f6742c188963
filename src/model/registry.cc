#include "model/registry.h"

#include <fmt/format.h>

namespace exode {
namespace {

constexpr Architecture kArchitectures[] = {
    {"qwen3_5", make_qwen3_5},
    {"qwen3_5_text", make_qwen3_5},
    {"qwen3_5_moe", make_qwen3_5_moe},
    {"qwen3_5_moe_text", make_qwen3_5_moe},
    {"qwen3", make_qwen3},
    {"llama", make_llama},
};

std::string supported_types() {
  std::string out;
  for (const Architecture& a : kArchitectures) {
    out += fmt::format("{}{}", out.empty() ? "" : ", ", a.model_type);
  }
  return out;
}

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

Result<std::unique_ptr<Model>> make_model(const Checkpoint& checkpoint, WeightLoader& loader,
                                          const ModelOptions& options) {
  const nlohmann::json& config = checkpoint.config();
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) {
    return invalid(
        fmt::format("config.json: model_type: missing; supported: {}", supported_types()));
  }
  const auto name = type->get<std::string>();
  for (const Architecture& a : kArchitectures) {
    if (a.model_type == name) return a.make(config, loader, options);
  }
  return unsupported(fmt::format("config.json: model_type: '{}' is not supported; supported: {}",
                                 name, supported_types()));
}

bool is_skipped_tensor(std::string_view name) {
  for (std::string_view prefix : {"mtp.", "model.mtp.", "model.visual.", "visual."}) {
    if (name.starts_with(prefix)) return true;
  }
  return name.ends_with("rotary_emb.inv_freq");
}

}  // namespace exode
