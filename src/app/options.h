// Command-line options shared by the commands, and what becomes of them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/api.h"

namespace exode::app {

struct EngineOptions {
  std::string model, device = "cpu", dtype = "bf16", kv_cache_dtype = "auto";
  std::string synthetic;  // instead of the model, where a command offers it
  std::string head_dtype = "auto", embedding = "device";
  std::string memory_limit, gpu_memory_limit, kv_memory;  // "24GiB", "800MB", plain bytes
  int32_t threads = 0, max_model_len = 0, max_num_seqs = 8, max_num_batched_tokens = 512;
  int32_t queue_max = 256;
  bool eager = false, self_test = false;
};

void add_engine_options(CLI::App& command, EngineOptions& options);
void add_synthetic_option(CLI::App& command, EngineOptions& options);
// Resolves the model folder, sizes and dtype names.
Result<EngineConfig> make_engine_config(const EngineOptions& options);

struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p, presence_penalty, frequency_penalty,
      repetition_penalty;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
};

void add_sampling_options(CLI::App& command, SamplingOptions& options);
// Options on top of the checkpoint's defaults; no seed = a random one.
SamplingParams make_sampling(const SamplingOptions& options, const SamplingParams& defaults);

// "24GiB", "24G", "800MB", "1024": bytes. Empty = 0.
Result<size_t> parse_bytes(const std::string& text);

}  // namespace exode::app
