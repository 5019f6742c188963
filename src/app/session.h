// Starting an engine from a command: progress, the start-up report, and one-request generation.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/model_files.h"
#include "app/options.h"

namespace exode::app {

// Creates the engine with a progress bar on a terminal; `files` gives the vocabulary limit.
Result<std::unique_ptr<Engine>> open_engine(EngineConfig config, const ModelFiles& files);

// Lines for people: weights, KV tokens, state, threads, the memory plan.
std::string startup_report(const EngineFacts& facts, const std::string& model);

struct Generation {
  std::vector<TokenId> ids;
  FinishReason finish = FinishReason::kNone;
  std::string error;
  double first_token_seconds = 0, total_seconds = 0;
};

// Submits one request and waits. `on_token` runs on this thread, in order. The engine must be
// started. `interrupted` is polled a few times a second; true cancels.
Result<Generation> generate(Engine& engine, Request request,
                            const std::function<void(TokenId)>& on_token,
                            const std::function<bool()>& interrupted);

std::string human_bytes(size_t bytes);  // "1.50 GiB", "12.0 MiB"

std::string_view finish_name(FinishReason reason);  // "stop", "length", …

}  // namespace exode::app
