#include "app/options.h"

#include <fmt/format.h>

#include <charconv>
#include <random>

#include "app/model_files.h"
#include "weights/synthetic.h"

namespace exode::app {

void add_engine_options(CLI::App& command, EngineOptions& o) {
  command.add_option("MODEL", o.model, "Checkpoint folder (default: the demo model)");
  command.add_option("--device", o.device, "cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--dtype", o.dtype, "Numerics: f32 or bf16 (auto = bf16)")
      ->capture_default_str();
  command.add_option("--kv-cache-dtype", o.kv_cache_dtype, "auto, f32, bf16 or f16")
      ->capture_default_str();
  command
      .add_option("--head-dtype", o.head_dtype,
                  "Output head: bf16 (as stored), int8 or int4; auto = int8 for large 16-bit heads")
      ->capture_default_str();
  command
      .add_option("--embedding", o.embedding,
                  "Memory of the embedding table: device, or host (read over the bus)")
      ->capture_default_str();
  command.add_option("--threads", o.threads, "CPU threads, 0 = all cores")->capture_default_str();
  command
      .add_option("--max-model-len", o.max_model_len,
                  "Context in tokens, 0 = what the model and memory allow")
      ->capture_default_str();
  command.add_option("--max-num-seqs", o.max_num_seqs, "Sequences in one step")
      ->capture_default_str();
  command
      .add_option("--max-num-batched-tokens", o.max_num_batched_tokens,
                  "Rows of one step: the prefill chunk")
      ->capture_default_str();
  command.add_option("--queue-max", o.queue_max, "Waiting requests before new ones get 429")
      ->capture_default_str();
  command.add_option("--memory-limit", o.memory_limit,
                     "Memory the plan may use, for example 24GiB");
  command.add_flag("--eager", o.eager, "Run every step directly instead of replaying records");
  command.add_flag("--self-test", o.self_test,
                   "At the start, compare recorded steps with direct ones bit for bit");
  command.add_option("--gpu-memory-limit", o.gpu_memory_limit,
                     "What the driver may report as used on the GPU, context included");
  command.add_option("--kv-memory", o.kv_memory, "Memory of the KV cache, for example 2GiB");
}

void add_synthetic_option(CLI::App& command, EngineOptions& o) {
  command.add_option("--synthetic", o.synthetic,
                     fmt::format("Made-up weights of a public model's shapes instead of MODEL: {}",
                                 synthetic_names()));
}

void add_sampling_options(CLI::App& command, SamplingOptions& o) {
  command.add_option("--temperature", o.temperature, "0 = greedy")->check(CLI::Range(0.0f, 100.0f));
  command.add_option("--top-p", o.top_p, "Nucleus mass")->check(CLI::Range(1e-6f, 1.0f));
  command.add_option("--top-k", o.top_k, "0 = off")->check(CLI::NonNegativeNumber);
  command.add_option("--min-p", o.min_p, "Relative to the likeliest token")
      ->check(CLI::Range(0.0f, 1.0f));
  command.add_option("--presence-penalty", o.presence_penalty)->check(CLI::Range(-2.0f, 2.0f));
  command.add_option("--frequency-penalty", o.frequency_penalty)->check(CLI::Range(-2.0f, 2.0f));
  command.add_option("--repetition-penalty", o.repetition_penalty)->check(CLI::Range(0.01f, 10.0f));
  command.add_option("--seed", o.seed, "Same seed, same tokens");
}

SamplingParams make_sampling(const SamplingOptions& o, const SamplingParams& defaults) {
  SamplingParams p = defaults;
  p.temperature = o.temperature.value_or(p.temperature);
  p.top_p = o.top_p.value_or(p.top_p);
  p.top_k = o.top_k.value_or(p.top_k);
  p.min_p = o.min_p.value_or(p.min_p);
  p.presence_penalty = o.presence_penalty.value_or(p.presence_penalty);
  p.frequency_penalty = o.frequency_penalty.value_or(p.frequency_penalty);
  p.repetition_penalty = o.repetition_penalty.value_or(p.repetition_penalty);
  p.seed = o.seed ? *o.seed : std::random_device{}();
  return p;
}

Result<size_t> parse_bytes(const std::string& text) {
  if (text.empty()) return size_t{0};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string unit(rest, end);
  double scale = 0;
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},         {"B", 1},      {"K", 0x1p10},   {"KiB", 0x1p10}, {"M", 0x1p20},
      {"MiB", 0x1p20}, {"G", 0x1p30}, {"GiB", 0x1p30}, {"T", 0x1p40},   {"TiB", 0x1p40},
      {"KB", 1e3},     {"MB", 1e6},   {"GB", 1e9},     {"TB", 1e12}};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) scale = factor;
  }
  const double bytes = number * scale;
  if (error != std::errc() || scale == 0 || !(bytes >= 0 && bytes < 1e15)) {
    return invalid(fmt::format("'{}' is not a size; write for example 24GiB or 800MB", text));
  }
  return static_cast<size_t>(bytes);
}

Result<EngineConfig> make_engine_config(const EngineOptions& o) {
  EngineConfig c;
  if (!o.synthetic.empty() && !o.model.empty()) {
    return invalid("give either MODEL or --synthetic NAME");
  }
  c.synthetic = o.synthetic;
  if (c.synthetic.empty()) {
    EXODE_ASSIGN(c.model, resolve_model(o.model));
  }
  c.device = o.device;
  if (o.dtype == "f32" || o.dtype == "float32") {
    c.dtype = DType::kF32;
  } else if (o.dtype == "bf16" || o.dtype == "bfloat16" || o.dtype == "auto") {
    c.dtype = DType::kBF16;
  } else {
    return invalid(fmt::format("--dtype {} is not known; use f32 or bf16", o.dtype));
  }
  c.kv_cache_dtype = o.kv_cache_dtype;
  c.head_dtype = o.head_dtype;
  c.embedding = o.embedding;
  c.threads = o.threads;
  c.max_model_len = o.max_model_len;
  c.max_num_seqs = o.max_num_seqs;
  c.max_num_batched_tokens = o.max_num_batched_tokens;
  c.queue_max = o.queue_max;
  if (o.eager && o.self_test) {
    return invalid("--self-test compares recorded steps, which --eager switches off");
  }
  c.eager = o.eager;
  c.self_test = o.self_test;
  EXODE_ASSIGN(c.memory_limit, parse_bytes(o.memory_limit));
  EXODE_ASSIGN(c.gpu_memory_limit, parse_bytes(o.gpu_memory_limit));
  EXODE_ASSIGN(c.kv_memory, parse_bytes(o.kv_memory));
  return c;
}

}  // namespace exode::app
