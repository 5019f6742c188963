// All that the server and the command line see of the engine: tokens in, tokens out.
//
//   EXODE_ASSIGN(auto engine, Engine::create(config));
//   engine->start();
//   engine->submit({.prompt = ids, .tokens_max = 9}, [](TokenEvent e) { … });
//
// submit() and cancel() may be called from any thread. Sinks run on the engine thread between
// steps: they must only hand the event over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "sample/params.h"
#include "tensor/dtype.h"

namespace exode {

struct EngineConfig {
  std::string model;      // checkpoint folder
  std::string synthetic;  // or a model without files (weights/synthetic.h)
  std::string device = "cpu";
  int32_t threads = 0;                  // CPU workers, 0 = all cores
  DType dtype = DType::kBF16;           // --dtype: numerics of activations and KV
  std::string kv_cache_dtype = "auto";  // auto = the format of dtype
  std::string head_dtype = "auto";      // bf16 = as stored, int8, int4; auto = int8 where it gains
  std::string embedding = "device";     // or host: read from pinned memory, token by token
  int32_t max_model_len = 0;            // tokens of one sequence; 0 = the model's, as memory allows
  int32_t max_num_seqs = 8;             // sequences in one step
  int32_t max_num_batched_tokens = 512;  // rows of one step: the prefill chunk
  int32_t queue_max = 256;               // waiting requests before submit() answers kBusy
  size_t memory_limit = 0;               // bytes the plan may use; 0 = 80 % of the device
  size_t gpu_memory_limit = 0;  // bytes the driver may report as used, context included; 0 = none
  size_t kv_memory = 0;         // bytes of KV; 0 = max_num_seqs full contexts, at most 8 GiB
  int32_t vocab_limit = 0;      // ids below it may be drawn (the tokenizer's size); 0 = all
  bool eager = false;           // never replay recorded steps
  bool self_test = false;       // at the start, compare every recorded step with the direct one
  bool evaluation = false;      // plan for evaluate(), which needs logits of many rows
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes while loading
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError };

struct TokenEvent {
  RequestId request = 0;
  std::vector<TokenId> tokens;  // new since the last event; the stop token is included, last
  FinishReason finish = FinishReason::kNone;
  std::string error;  // with kError
  int32_t prompt_tokens = 0, cached_tokens = 0;
};

struct Request {
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  int32_t tokens_max = 16;           // new tokens
  std::vector<TokenId> stop_tokens;  // generation ends after one of these; empty = ignore_eos
};

struct PlanLine {
  std::string purpose;
  size_t bytes = 0;
};

// Facts for the start-up report, /v1/models and limits.
struct EngineFacts {
  std::string family;  // "qwen3_5"
  std::string device;  // "cpu, 2 threads"
  std::string kv_format;
  int32_t vocab = 0;
  int32_t context_max = 0;  // prompt + output tokens of one sequence
  int64_t kv_tokens = 0;    // tokens the KV pool holds
  int32_t state_slots = 0;
  std::vector<PlanLine> plan;  // every line of the memory plan
  std::vector<std::pair<std::string, int32_t>> weight_formats;
  std::string self_test;  // what it compared; empty = it did not run
  std::string head;       // what the output head became and why
  size_t embedding_host_bytes = 0;
  double load_seconds = 0;    // all of the start
  double weight_seconds = 0;  // reading weights alone
  uint64_t weight_file_bytes = 0;
  size_t device_used_bytes = 0;  // as the driver reports it after loading (device/device.h)
};

struct EngineStats {
  int32_t running = 0, waiting = 0;
  uint64_t prompt_tokens = 0, output_tokens = 0, steps = 0;
  int64_t kv_blocks_free = 0, kv_blocks_total = 0;
};

class Engine {
 public:
  using Sink = std::function<void(TokenEvent)>;

  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config);
  virtual ~Engine() = default;  // stops, cancelling what runs

  virtual void start() = 0;  // the engine thread
  virtual void stop() = 0;   // waits for the step in progress; cancels the rest
  // kBusy: queue full. kInvalidArgument: empty prompt, token outside the vocabulary, or a prompt
  // that leaves no room for one token.
  virtual Result<RequestId> submit(Request request, Sink sink) = 0;
  virtual void cancel(RequestId request) = 0;  // unknown or finished ids are ignored
  virtual const EngineFacts& facts() const = 0;
  virtual EngineStats stats() const = 0;

  // Teacher-forced logits of every position, without the scheduler; only before start(). `rows`
  // is called in order with [count, vocab] f32 logits of positions first…first + count − 1. Needs
  // EngineConfig::evaluation; a step takes at most max_num_batched_tokens rows.
  using LogitRows = std::function<void(int32_t first, int32_t count, const float* logits)>;
  virtual Status evaluate(std::span<const TokenId> tokens, const LogitRows& rows) = 0;
};

}  // namespace exode
