// The request bodies of OpenAI's chat and completion routes (with vLLM's extra fields) as values.
// Fields that were absent stay empty, so that a sent default differs from no value. Fields that
// are known but not served are refused; unknown ones are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "sample/params.h"
#include "server/api_error.h"
#include "server/json.h"

namespace exode::server {

struct SamplingFields {
  std::optional<float> temperature, top_p, min_p;
  std::optional<int32_t> top_k;
  std::optional<float> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<uint64_t> seed;
  std::vector<LogitBias> logit_bias;
};

struct GenerationFields {
  std::string model;  // as sent; empty = the served one
  SamplingFields sampling;
  std::optional<int32_t> tokens_max;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  int32_t n = 1;
  bool ignore_eos = false, skip_special_tokens = true;
  bool stream = false, include_usage = false;
};

struct ChatRequest {
  GenerationFields generation;
  Json messages = Json::array();  // as the template wants them, see normalise_messages()
  Json tools = Json::array();
  Json template_kwargs = Json::object();
  bool add_generation_prompt = true;
};

// A prompt is text or token ids.
struct CompletionPrompt {
  std::string text = {};
  std::vector<TokenId> ids = {};
  bool is_text = true;
};

struct CompletionRequest {
  GenerationFields generation;
  std::vector<CompletionPrompt> prompts;
  bool add_special_tokens = true;
};

Failure parse_chat(const Json& body, ChatRequest* request);
Failure parse_completion(const Json& body, CompletionRequest* request);

// Only what decides the prompt: messages, tools, chat_template_kwargs, add_generation_prompt.
Failure parse_chat_prompt(const Json& body, ChatRequest* request);

// messages.cc. OpenAI messages to template messages: developer becomes system and leading system
// messages are joined, text parts become one string, arguments of tool calls become objects,
// reasoning is passed on as reasoning_content.
Failure normalise_messages(const Json& messages, Json* out);
// Members in the order models were trained on: type, function {name, description, parameters, …}.
Failure normalise_tools(const Json& tools, Json* out);

}  // namespace exode::server
