// exode generate: one completion of raw text or token ids, no chat template.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/session.h"

namespace exode::app {
namespace {

struct Options {
  EngineOptions engine;
  SamplingOptions sampling;
  std::string prompt, ids;
  int32_t max_tokens = 128;
  bool ignore_eos = false, json = false;
};

Result<std::vector<TokenId>> parse_ids(const std::string& text) {
  std::vector<TokenId> ids;
  const char* p = text.data();
  const char* end = p + text.size();
  while (p < end) {
    TokenId id = 0;
    const auto [rest, error] = std::from_chars(p, end, id);
    const bool separated = rest == end || *rest == ',' || *rest == ' ';
    if (error != std::errc() || !separated) {
      return invalid(fmt::format("--ids: '{}' is not a list like 1,2,3", text));
    }
    ids.push_back(id);
    p = rest;
    while (p < end && (*p == ',' || *p == ' ')) ++p;
  }
  return ids;
}

Result<std::vector<TokenId>> prompt_ids(const Options& o, const ModelFiles& files) {
  if (!o.ids.empty()) return parse_ids(o.ids);
  if (!files.tokenizer) {
    return invalid(
        fmt::format("{} has no tokenizer.json: give --ids instead of --prompt", files.directory));
  }
  return files.tokenizer->encode(o.prompt, {.parse_special = true, .add_special_tokens = true});
}

std::string result_json(const Generation& g, size_t prompt_tokens, const std::string& text) {
  const auto count = static_cast<double>(g.ids.size());
  const double decode = g.total_seconds - g.first_token_seconds;
  nlohmann::ordered_json out;
  out["ids"] = g.ids;
  out["text"] = text;
  out["finish_reason"] = finish_name(g.finish);
  out["usage"] = {{"prompt_tokens", prompt_tokens},
                  {"completion_tokens", g.ids.size()},
                  {"total_tokens", prompt_tokens + g.ids.size()}};
  out["timings"] = {
      {"first_token_s", g.first_token_seconds},
      {"prefill_tokens_per_s",
       static_cast<double>(prompt_tokens) / std::max(g.first_token_seconds, 1e-9)},
      {"decode_tokens_per_s", count > 1 ? (count - 1) / std::max(decode, 1e-9) : 0.0}};
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<int> run(Options o) {
  if (o.prompt.empty() == o.ids.empty()) return invalid("give either --prompt TEXT or --ids 1,2,3");
  EXODE_ASSIGN(EngineConfig config, make_engine_config(o.engine));
  config.max_num_seqs = 1;
  EXODE_ASSIGN(const ModelFiles files, open_model_files(config.model));
  EXODE_ASSIGN(auto engine, open_engine(config, files));
  Request request;
  EXODE_ASSIGN(request.prompt, prompt_ids(o, files));
  request.sampling = make_sampling(o.sampling, default_sampling(files.generation));
  request.tokens_max = o.max_tokens;
  if (!o.ignore_eos) request.stop_tokens = files.generation.stop_tokens;
  const size_t prompt_tokens = request.prompt.size();

  std::string text;
  const auto decoder =
      files.tokenizer ? std::make_unique<text::StreamDecoder>(*files.tokenizer, false) : nullptr;
  const auto emit = [&](const std::string& piece) {
    text += piece;
    if (!o.json) fmt::print("{}", piece);
    std::fflush(stdout);
  };
  install_interrupt_handler();
  engine->start();
  const std::vector<TokenId>& stops = files.generation.stop_tokens;
  EXODE_ASSIGN(const Generation g, generate(
                                       *engine, std::move(request),
                                       [&](TokenId id) {
                                         const bool stop =
                                             !o.ignore_eos && std::find(stops.begin(), stops.end(),
                                                                        id) != stops.end();
                                         if (decoder && !stop) emit(decoder->feed(id));
                                       },
                                       interrupted));
  if (decoder) emit(decoder->finish());
  if (!decoder && !o.json) fmt::print("{}", fmt::join(g.ids, ","));
  fmt::print("{}\n", o.json ? result_json(g, prompt_tokens, text) : "");
  if (g.finish == FinishReason::kError) return Error{ErrorCode::kIo, g.error};
  return g.finish == FinishReason::kCancelled ? 130 : 0;
}

}  // namespace

Run add_generate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.description("Complete raw text or token ids (no chat template)");
  add_engine_options(app, o->engine);
  add_sampling_options(app, o->sampling);
  app.add_option("--prompt", o->prompt, "Text; special tokens in it count");
  app.add_option("--ids", o->ids, "Token ids instead of text: 1,2,3");
  app.add_option("--max-tokens", o->max_tokens, "New tokens")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--ignore-eos", o->ignore_eos, "Do not stop at end-of-sequence tokens");
  app.add_flag("--json", o->json, "Print one JSON object instead of the text");
  return [o] { return run(*o); };
}

}  // namespace exode::app
