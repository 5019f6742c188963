#include "server/openai.h"

#include <fmt/format.h>
#include <charconv>

#include "base/log.h"
#include "server/fields.h"

namespace exode::server {
namespace {

constexpr int64_t kTokensMax = INT32_MAX;
constexpr int64_t kChoicesMax = 8;
constexpr size_t kStopMax = 16, kStopBytes = 1024, kPromptsMax = 256, kBiasMax = 1024;

std::optional<float> to_float(std::optional<double> x) {
  return x ? std::optional<float>(static_cast<float>(*x)) : std::nullopt;
}

void read_logit_bias(Fields& fields, std::vector<LogitBias>* out) {
  const Json* map = fields.object("logit_bias");
  if (map == nullptr) return;
  if (map->size() > kBiasMax) {
    return fields.fail("logit_bias", fmt::format("an object of at most {} members", kBiasMax));
  }
  for (const auto& item : map->items()) {
    const std::string& key = item.key();
    TokenId token = 0;
    const auto [end, ec] = std::from_chars(key.data(), key.data() + key.size(), token);
    const double bias = item.value().is_number() ? item.value().get<double>() : 1e9;
    const bool token_ok = ec == std::errc() && end == key.data() + key.size() && token >= 0;
    if (!token_ok || !(bias >= -100 && bias <= 100)) {
      return fields.fail("logit_bias", "an object from token ids to numbers from -100 to 100");
    }
    out->push_back({token, static_cast<float>(bias)});
  }
}

void read_sampling(Fields& fields, SamplingFields* out) {
  out->temperature = to_float(fields.number("temperature", 0, 100));
  out->top_p = to_float(fields.number("top_p", 0, 1));
  if (out->top_p && *out->top_p <= 0) fields.fail("top_p", "above 0 and at most 1");
  out->min_p = to_float(fields.number("min_p", 0, 1));
  const auto top_k = fields.integer("top_k", -1, kTokensMax);
  if (top_k) out->top_k = static_cast<int32_t>(*top_k < 0 ? 0 : *top_k);
  out->presence_penalty = to_float(fields.number("presence_penalty", -2, 2));
  out->frequency_penalty = to_float(fields.number("frequency_penalty", -2, 2));
  out->repetition_penalty = to_float(fields.number("repetition_penalty", 0.01, 100));
  const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX);
  if (seed) out->seed = static_cast<uint64_t>(*seed);
  read_logit_bias(fields, &out->logit_bias);
}

void read_stop(Fields& fields, std::vector<std::string>* out) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  bool ok = list.size() <= kStopMax;
  for (const Json& item : list) {
    if (!ok || !item.is_string() || item.get_ref<const std::string&>().size() > kStopBytes) {
      ok = false;
      break;
    }
    if (item != "") out->push_back(item.get<std::string>());
  }
  if (!ok) {
    fields.fail("stop", fmt::format("a string or at most {} strings of at most {} bytes", kStopMax,
                                    kStopBytes));
  }
}

bool read_ids(const Json& list, std::vector<TokenId>* out) {
  for (const Json& item : list) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() > kTokensMax) {
      return false;
    }
    out->push_back(static_cast<TokenId>(item.get<int64_t>()));
  }
  return true;
}

// What vLLM or OpenAI would do with these changes the answer, so ignoring them would be wrong.
void refuse_unserved(Fields& fields) {
  fields.refuse_unless("prompt_logprobs", false, "prompt log-probabilities are");
  fields.refuse_unless("best_of", 1, "best_of above 1 is");
  fields.refuse_unless("use_beam_search", false, "beam search is");
  fields.refuse_unless("min_tokens", 0, "a minimum of tokens is");
  fields.refuse_unless("include_stop_str_in_output", false, "returning the stop string is");
  fields.refuse_unless("echo", false, "echo is");
  fields.refuse_unless("suffix", "", "a suffix is");
  fields.refuse_unless("bad_words", Json::array(), "bad words are");
  for (const char* name : {"structured_outputs", "guided_json", "guided_regex", "guided_choice",
                           "guided_grammar", "grammar", "json_schema", "allowed_token_ids",
                           "truncate_prompt_tokens", "thinking_token_budget", "prompt_embeds"}) {
    fields.refuse_unless(name, nullptr, "this field is");
  }
  const Json* format = fields.object("response_format");
  if (format != nullptr && format->value("type", Json()) != "text") {
    fields.fail(not_supported("response_format", "formats other than text are"));
  }
}

void read_generation(Fields& fields, GenerationFields* out) {
  out->model = fields.string("model").value_or("");
  read_sampling(fields, &out->sampling);
  read_stop(fields, &out->stop);
  const Json* stops = fields.array("stop_token_ids");
  if (stops != nullptr && !read_ids(*stops, &out->stop_token_ids)) {
    fields.fail("stop_token_ids", "an array of token ids");
  }
  const auto tokens = fields.integer("max_tokens", 1, kTokensMax);
  if (tokens) out->tokens_max = static_cast<int32_t>(*tokens);
  out->n = static_cast<int32_t>(fields.integer("n", 1, kChoicesMax).value_or(1));
  out->ignore_eos = fields.boolean("ignore_eos").value_or(false);
  out->skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  out->stream = fields.boolean("stream").value_or(false);
  if (const Json* options = fields.object("stream_options")) {
    Fields inner(*options, "stream_options.");
    out->include_usage = inner.boolean("include_usage").value_or(false);
    inner.refuse_unless("continuous_usage_stats", false, "usage in every chunk is");
    if (inner.failure()) fields.fail(*inner.failure());
  }
  refuse_unserved(fields);
}

Failure finish(const Fields& fields) {
  if (fields.failure()) return fields.failure();
  for (const std::string& name : fields.unknown()) {
    log_debug("http", "ignored request field " + name.substr(0, 64));
  }
  return std::nullopt;
}

// These would replace what the server itself passes to the template.
constexpr const char* kReservedKwargs[] = {
    "chat_template",        "tokenize", "messages", "tools", "bos_token", "eos_token",
    "add_generation_prompt"};

void read_template_kwargs(Fields& fields, Json* out) {
  const auto effort = fields.string("reasoning_effort");
  if (effort) {
    (*out)["reasoning_effort"] = *effort;
    (*out)["enable_thinking"] = *effort != "none";
  }
  const Json* kwargs = fields.object("chat_template_kwargs");
  if (kwargs == nullptr) return;
  for (const char* name : kReservedKwargs) {
    if (kwargs->contains(name)) {
      return fields.fail(
          bad_value("chat_template_kwargs",
                    std::string("'chat_template_kwargs' must not contain '") + name + "'."));
    }
  }
  for (const auto& item : kwargs->items()) (*out)[item.key()] = item.value();
}

void read_chat_prompt(Fields& fields, ChatRequest* out) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr) return fields.fail("messages", "present");
  if (Failure f = normalise_messages(*messages, &out->messages)) return fields.fail(*f);
  if (const Json* tools = fields.array("tools")) {
    if (Failure f = normalise_tools(*tools, &out->tools)) return fields.fail(*f);
  }
  const Json* choice = fields.find("tool_choice");
  if (choice != nullptr && *choice != "auto" && *choice != "none") {
    fields.fail(not_supported("tool_choice", "choices other than \"auto\" and \"none\" are"));
  }
  read_template_kwargs(fields, &out->template_kwargs);
  out->add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  fields.refuse_unless("continue_final_message", false, "continuing the last message is");
  fields.refuse_unless("chat_template", nullptr, "a template in the request is");
  fields.refuse_unless("documents", nullptr, "documents are");
  fields.refuse_unless("functions", nullptr, "use 'tools'; this field is");
  fields.refuse_unless("function_call", nullptr, "use 'tool_choice'; this field is");
}

Failure object_only(const Json& body) {
  if (body.is_object()) return std::nullopt;
  return bad_value("", "The body must be a JSON object.");
}

void read_prompts(Fields& fields, std::vector<CompletionPrompt>* out) {
  static constexpr const char* kForm = "a string, an array of strings, or an array of token ids";
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.fail("prompt", kForm);
  if (prompt->is_string()) {
    out->push_back({.text = prompt->get<std::string>()});
    return;
  }
  if (!prompt->is_array() || prompt->empty()) return fields.fail("prompt", kForm);
  const bool one_list = prompt->front().is_number();
  const Json list = one_list ? Json::array({*prompt}) : *prompt;
  if (list.size() > kPromptsMax) {
    return fields.fail("prompt", fmt::format("at most {} prompts", kPromptsMax));
  }
  for (const Json& item : list) {
    CompletionPrompt one;
    if (item.is_string()) {
      one.text = item.get<std::string>();
    } else if (item.is_array() && read_ids(item, &one.ids)) {
      one.is_text = false;
    } else {
      return fields.fail("prompt", kForm);
    }
    out->push_back(std::move(one));
  }
}

}  // namespace

Failure parse_chat(const Json& body, ChatRequest* request) {
  if (Failure f = object_only(body)) return f;
  Fields fields(body);
  read_chat_prompt(fields, request);
  read_generation(fields, &request->generation);
  const auto newer = fields.integer("max_completion_tokens", 1, kTokensMax);
  if (newer) request->generation.tokens_max = static_cast<int32_t>(*newer);
  fields.refuse_unless("logprobs", false, "log-probabilities are");
  fields.refuse_unless("top_logprobs", 0, "log-probabilities are");
  return finish(fields);
}

Failure parse_completion(const Json& body, CompletionRequest* request) {
  if (Failure f = object_only(body)) return f;
  Fields fields(body);
  read_prompts(fields, &request->prompts);
  read_generation(fields, &request->generation);
  if (!request->generation.tokens_max) request->generation.tokens_max = 16;
  request->add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  fields.refuse_unless("logprobs", nullptr, "log-probabilities are");
  return finish(fields);
}

Failure parse_chat_prompt(const Json& body, ChatRequest* request) {
  if (Failure f = object_only(body)) return f;
  Fields fields(body);
  read_chat_prompt(fields, request);
  return fields.failure();
}

}  // namespace exode::server
