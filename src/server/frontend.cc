#include "server/frontend.h"

#include <fmt/format.h>
#include <algorithm>
#include <random>

namespace exode::server {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

Frontend::Frontend(FrontendConfig config, const text::Tokenizer* tokenizer,
                   const text::ChatTemplate* chat_template)
    : config_(std::move(config)), tokenizer_(tokenizer), chat_template_(chat_template) {
  tags_.open = tokenizer_->find(kThinkOpen);
  tags_.close = tokenizer_->find(kThinkClose);
  tags_.message_start = tokenizer_->find("<|im_start|>");
  if (!tags_.open || !tags_.close) tags_.open = tags_.close = std::nullopt;
}

SamplingParams Frontend::sampling(const SamplingFields& fields) const {
  const GenerationDefaults& defaults = config_.defaults;
  SamplingParams params;
  const auto pick = [](auto* value, const auto& sent, const auto& fallback) {
    if (sent) {
      *value = *sent;
    } else if (fallback) {
      *value = *fallback;
    }
  };
  pick(&params.temperature, fields.temperature, defaults.temperature);
  pick(&params.top_p, fields.top_p, defaults.top_p);
  pick(&params.min_p, fields.min_p, defaults.min_p);
  pick(&params.top_k, fields.top_k, defaults.top_k);
  pick(&params.repetition_penalty, fields.repetition_penalty, defaults.repetition_penalty);
  params.presence_penalty = fields.presence_penalty.value_or(0);
  params.frequency_penalty = fields.frequency_penalty.value_or(0);
  params.seed = fields.seed ? *fields.seed : random_seed();
  params.logit_bias = fields.logit_bias;
  return params;
}

Failure Frontend::check_ids(std::span<const TokenId> ids, const char* param) const {
  for (const TokenId id : ids) {
    if (id < 0 || id >= config_.vocab) {
      return bad_value(param, fmt::format("'{}': token id {} is outside the vocabulary of {}.",
                                          param, id, config_.vocab));
    }
  }
  return std::nullopt;
}

Failure Frontend::add(const GenerationFields& fields, std::vector<TokenId> prompt,
                      ReasoningStart start, std::vector<Prepared>* out) const {
  const auto length = static_cast<int64_t>(prompt.size());
  if (length == 0) return bad_value("prompt", "The prompt has no tokens.");
  const int64_t wanted = fields.tokens_max.value_or(1);
  if (length + wanted > config_.context_max) {
    return context_exceeded(length, wanted, config_.context_max);
  }
  std::vector<TokenId> biased;
  for (const LogitBias& bias : fields.sampling.logit_bias) biased.push_back(bias.token);
  if (Failure f = check_ids(biased, "logit_bias")) return f;
  if (Failure f = check_ids(fields.stop_token_ids, "stop_token_ids")) return f;

  Prepared one;
  one.request.sampling = sampling(fields.sampling);
  one.request.tokens_max =
      fields.tokens_max.value_or(config_.context_max - static_cast<int32_t>(length));
  one.request.stop_tokens = fields.stop_token_ids;
  if (!fields.ignore_eos) {
    one.request.stop_tokens.insert(one.request.stop_tokens.end(), config_.stop_tokens.begin(),
                                   config_.stop_tokens.end());
  }
  one.request.prompt = std::move(prompt);
  one.output = {one.request.stop_tokens, fields.stop, fields.skip_special_tokens, start};
  for (int32_t i = 0; i < fields.n; ++i) {
    out->push_back(one);
    ++one.request.sampling.seed;
  }
  return std::nullopt;
}

Failure Frontend::tokenize(const ChatRequest& chat, std::vector<TokenId>* ids) const {
  if (chat_template_ == nullptr) {
    return ApiError{.message = "This model has no chat template; use /v1/completions.",
                    .param = "messages",
                    .code = "template_error"};
  }
  Json context = {{"messages", chat.messages},
                  {"add_generation_prompt", chat.add_generation_prompt},
                  {"bos_token", std::string(tokenizer_->bos_string())},
                  {"eos_token", std::string(tokenizer_->eos_string())}};
  if (!chat.tools.empty()) context["tools"] = chat.tools;
  for (const auto& item : chat.template_kwargs.items()) context[item.key()] = item.value();
  const auto spans = chat_template_->render(context);
  if (!spans.ok()) {
    return ApiError{.message = "The chat template refused the messages: " + spans.error().message,
                    .param = "messages",
                    .code = "template_error"};
  }
  *ids = tokenizer_->encode_spans(spans.value());
  return std::nullopt;
}

Failure Frontend::prepare(const ChatRequest& chat, std::vector<Prepared>* out) const {
  std::vector<TokenId> ids;
  if (Failure f = tokenize(chat, &ids)) return f;
  const ReasoningStart start = reasoning_start(ids, tags_);
  return add(chat.generation, std::move(ids), start, out);
}

Failure Frontend::prepare(const CompletionRequest& completion, std::vector<Prepared>* out) const {
  for (const CompletionPrompt& prompt : completion.prompts) {
    std::vector<TokenId> ids = prompt.ids;
    if (prompt.is_text) {
      ids = tokenizer_->encode(prompt.text, {.add_special_tokens = completion.add_special_tokens});
    }
    if (Failure f = check_ids(ids, "prompt")) return f;
    Failure f = add(completion.generation, std::move(ids), ReasoningStart::kOff, out);
    if (f) {
      if (f->param == "messages") f->param = "prompt";
      return f;
    }
  }
  return std::nullopt;
}

std::unique_ptr<OutputStream> Frontend::open(const OutputSpec& spec) const {
  return std::make_unique<OutputStream>(*tokenizer_, spec, tags_);
}

OutputStream::OutputStream(const text::Tokenizer& tokenizer, const OutputSpec& spec,
                           const ReasoningTokens& tags)
    : spec_(spec),
      tags_(tags),
      decoder_(tokenizer, spec.skip_special),
      splitter_(spec.reasoning, tags.open.has_value()),
      stop_(spec.stop) {}

// Stop strings are looked for in the answer only: a thought may mention them.
void OutputStream::pass(std::vector<TextPart> parts, std::vector<TextPart>* out) {
  for (TextPart& part : parts) {
    if (!part.reasoning) part.text = stop_.feed(part.text);
    if (part.text.empty()) continue;
    if (!out->empty() && out->back().reasoning == part.reasoning) {
      out->back().text += part.text;
    } else {
      out->push_back(std::move(part));
    }
  }
}

void OutputStream::feed_one(TokenId token, std::vector<TextPart>* out) {
  const bool was_inside = splitter_.inside();
  const bool splits = spec_.reasoning != ReasoningStart::kOff && tags_.open;
  if (std::find(spec_.stop_tokens.begin(), spec_.stop_tokens.end(), token) !=
      spec_.stop_tokens.end()) {
    // The engine ends here; the token is counted but has no text.
  } else if (splits && (token == *tags_.open || token == *tags_.close)) {
    // Bytes of an unfinished character before the tag belong before it.
    pass(splitter_.feed(decoder_.finish()), out);
    pass(token == *tags_.open ? splitter_.open_tag() : splitter_.close_tag(), out);
  } else {
    pass(splitter_.feed(decoder_.feed(token)), out);
  }
  ++tokens_;
  if (was_inside || splitter_.inside()) ++reasoning_tokens_;
}

std::vector<TextPart> OutputStream::feed(std::span<const TokenId> tokens) {
  std::vector<TextPart> out;
  for (const TokenId token : tokens) {
    if (stopped()) break;
    feed_one(token, &out);
  }
  return out;
}

std::vector<TextPart> OutputStream::finish() {
  std::vector<TextPart> out;
  if (stopped()) return out;
  pass(splitter_.feed(decoder_.finish()), &out);
  pass(splitter_.finish(), &out);
  std::string rest = stop_.finish();
  if (!rest.empty()) {
    std::vector<TextPart> last;
    last.push_back({false, std::move(rest)});
    // Past the stop filter already.
    if (!out.empty() && !out.back().reasoning) {
      out.back().text += last.front().text;
    } else {
      out.push_back(std::move(last.front()));
    }
  }
  return out;
}

}  // namespace exode::server
