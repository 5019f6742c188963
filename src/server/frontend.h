// Text on one side, tokens on the other: renders and tokenises requests, and turns generated
// tokens back into text. Thread-safe; knows nothing of HTTP.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/api.h"
#include "server/openai.h"
#include "server/reasoning.h"
#include "server/stop_strings.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace exode::server {

// Sampling values for fields that a request leaves out; empty ones take OpenAI's defaults.
struct GenerationDefaults {
  std::optional<float> temperature = {}, top_p = {}, min_p = {}, repetition_penalty = {};
  std::optional<int32_t> top_k = {};
};

struct FrontendConfig {
  GenerationDefaults defaults;
  std::vector<TokenId> stop_tokens;
  int32_t context_max = 0;  // prompt + output
  // Ids a request may name: the engine's rows or the tokenizer's size, whichever is less.
  int32_t vocab = 0;
};

// What of a request the output side needs.
struct OutputSpec {
  std::vector<TokenId> stop_tokens;
  std::vector<std::string> stop;
  bool skip_special = true;
  ReasoningStart reasoning = ReasoningStart::kOff;
};

// One prompt, ready for the engine.
struct Prepared {
  Request request;
  OutputSpec output;
};

class OutputStream;

class Frontend {
 public:
  // `chat_template` may be null: chats are refused then. Both must outlive the frontend.
  Frontend(FrontendConfig config, const text::Tokenizer* tokenizer,
           const text::ChatTemplate* chat_template);

  // n requests with seeds seed, seed + 1, …; a missing seed is drawn at random.
  Failure prepare(const ChatRequest& chat, std::vector<Prepared>* out) const;
  // Prompt by prompt, n requests each.
  Failure prepare(const CompletionRequest& completion, std::vector<Prepared>* out) const;
  Failure tokenize(const ChatRequest& chat, std::vector<TokenId>* ids) const;

  std::unique_ptr<OutputStream> open(const OutputSpec& spec) const;
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  const FrontendConfig& config() const { return config_; }

 private:
  Failure add(const GenerationFields& fields, std::vector<TokenId> prompt, ReasoningStart start,
              std::vector<Prepared>* out) const;
  Failure check_ids(std::span<const TokenId> ids, const char* param) const;
  SamplingParams sampling(const SamplingFields& fields) const;

  FrontendConfig config_;
  const text::Tokenizer* tokenizer_;
  const text::ChatTemplate* chat_template_;
  ReasoningTokens tags_;
};

// Generated tokens of one choice to text parts.
class OutputStream {
 public:
  OutputStream(const text::Tokenizer& tokenizer, const OutputSpec& spec,
               const ReasoningTokens& tags);

  // After a stop string matched (stopped()), further tokens add nothing.
  std::vector<TextPart> feed(std::span<const TokenId> tokens);
  std::vector<TextPart> finish();
  bool stopped() const { return stop_.matched(); }
  int32_t tokens() const { return tokens_; }  // fed so far, the stop token included
  int32_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void feed_one(TokenId token, std::vector<TextPart>* out);
  void pass(std::vector<TextPart> parts, std::vector<TextPart>* out);

  OutputSpec spec_;
  ReasoningTokens tags_;
  text::StreamDecoder decoder_;
  ReasoningSplitter splitter_;
  StopStrings stop_;
  int32_t tokens_ = 0, reasoning_tokens_ = 0;
};

}  // namespace exode::server
