// Which architectures exist, and how to make a model from a checkpoint.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "model/model.h"
#include "weights/loader.h"

namespace exode {

struct ModelOptions {
  DType activations = DType::kF32;  // what the backend computes in
};

struct Architecture {
  std::string_view model_type;  // of config.json (top level or text_config)
  Result<std::unique_ptr<Model>> (*make)(const nlohmann::json& config, WeightLoader& loader,
                                         const ModelOptions& options);
};

std::span<const Architecture> architectures();

// Runs once with a planning loader and once with a loading one; both give a complete spec().
// An unknown model_type is an error that lists what is supported.
Result<std::unique_ptr<Model>> make_model(const Checkpoint& checkpoint, WeightLoader& loader,
                                          const ModelOptions& options);

// Tensors that text generation leaves unread on purpose: vision towers, MTP layers, rope tables.
bool is_skipped_tensor(std::string_view name);

// One factory per family, defined in archs/.
Result<std::unique_ptr<Model>> make_qwen3_5(const nlohmann::json&, WeightLoader&,
                                            const ModelOptions&);
Result<std::unique_ptr<Model>> make_qwen3_5_moe(const nlohmann::json&, WeightLoader&,
                                                const ModelOptions&);
Result<std::unique_ptr<Model>> make_qwen3(const nlohmann::json&, WeightLoader&,
                                          const ModelOptions&);
Result<std::unique_ptr<Model>> make_llama(const nlohmann::json&, WeightLoader&,
                                          const ModelOptions&);

}  // namespace exode
