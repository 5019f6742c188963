// exode eval: teacher-forced logits of given ids, or perplexity of a text file.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/session.h"
#include "base/mapped_file.h"
#include "weights/safetensors_writer.h"

namespace exode::app {
namespace {

constexpr size_t kIdsFileMax = 64 << 20;
constexpr size_t kSegmentTokensDefault = 2048;

struct Options {
  EngineOptions engine;
  std::string logits, out, perplexity;
  int64_t lines = 0;
  size_t segment_tokens = kSegmentTokensDefault;
  bool json = false;
};

// A JSON list of ids, or an object with one under "ids" or "input_ids".
Result<std::vector<TokenId>> read_ids(const std::string& path) {
  EXODE_ASSIGN(const std::string source, read_text_file(path, kIdsFileMax));
  nlohmann::json parsed = nlohmann::json::parse(source, nullptr, false);
  for (const char* key : {"ids", "input_ids"}) {
    if (parsed.is_object() && parsed.contains(key)) parsed = nlohmann::json(parsed[key]);
  }
  const Error bad = invalid(fmt::format("{}: expected a JSON list of token ids", path));
  if (!parsed.is_array()) return bad;
  std::vector<TokenId> ids;
  for (const nlohmann::json& id : parsed) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) return bad;
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

Status write_logits(Engine& engine, const Options& o) {
  EXODE_ASSIGN(const std::vector<TokenId> ids, read_ids(o.logits));
  if (o.out.empty()) return invalid("--logits needs --out FILE.safetensors");
  const auto vocab = static_cast<size_t>(engine.facts().vocab);
  EXODE_ASSIGN(auto file,
               SafetensorsWriter::create(o.out, "logits", FileDType::kF32,
                                         {static_cast<int64_t>(ids.size()), engine.facts().vocab}));
  Status written = Done{};
  EXODE_TRY(engine.evaluate(ids, [&](int32_t, int32_t count, const float* logits) {
    if (!written.ok()) return;
    written = file.append(std::as_bytes(std::span(logits, static_cast<size_t>(count) * vocab)));
  }));
  EXODE_TRY(std::move(written));
  return file.finish();
}

// −log softmax(logits)[target], in double.
double negative_log_likelihood(const float* logits, int32_t vocab, TokenId target) {
  float peak = logits[0];
  for (int32_t i = 1; i < vocab; ++i) peak = std::max(peak, logits[i]);
  double sum = 0;
  for (int32_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[i] - peak));
  return std::log(sum) - static_cast<double>(logits[target] - peak);
}

struct Perplexity {
  int64_t lines = 0, tokens = 0;
  double nll = 0;
};

// Each line is ["kind", text] or a JSON string, a segment of its own.
Result<std::string> segment_text(const std::string& line, const std::string& path, int64_t number) {
  const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
  if (parsed.is_string()) return parsed.get<std::string>();
  if (parsed.is_array() && parsed.size() == 2 && parsed[1].is_string())
    return parsed[1].get<std::string>();
  return invalid(
      fmt::format("{}:{}: expected [\"kind\", \"text\"] or a JSON string", path, number));
}

Result<Perplexity> measure_perplexity(Engine& engine, const text::Tokenizer& tokenizer,
                                      const Options& o) {
  std::ifstream file(o.perplexity);
  if (!file) return not_found(fmt::format("{}: cannot open", o.perplexity));
  Perplexity p;
  const int32_t vocab = engine.facts().vocab;
  std::string line;
  for (int64_t number = 1; std::getline(file, line) && (o.lines == 0 || number <= o.lines);
       ++number) {
    if (interrupted()) return Error{ErrorCode::kCancelled, "interrupted"};
    EXODE_ASSIGN(const std::string text, segment_text(line, o.perplexity, number));
    std::vector<TokenId> ids = tokenizer.encode(text, {.parse_special = true});
    if (ids.size() > o.segment_tokens) ids.resize(o.segment_tokens);
    if (ids.size() < 2) continue;
    ++p.lines;
    EXODE_TRY(engine.evaluate(ids, [&](int32_t first, int32_t count, const float* logits) {
      for (int32_t r = 0; r < count && first + r + 1 < static_cast<int32_t>(ids.size()); ++r) {
        const float* row = logits + static_cast<int64_t>(r) * vocab;
        p.nll += negative_log_likelihood(row, vocab, ids[static_cast<size_t>(first + r + 1)]);
        ++p.tokens;
      }
    }));
  }
  if (p.tokens == 0) return invalid(fmt::format("{}: no segment with two tokens", o.perplexity));
  return p;
}

Result<int> run(Options o) {
  if (o.logits.empty() == o.perplexity.empty()) {
    return invalid(
        "give either --logits IDS.json --out FILE.safetensors or --perplexity FILE.jsonl");
  }
  EXODE_ASSIGN(EngineConfig config, make_engine_config(o.engine));
  config.max_num_seqs = 1;
  config.evaluation = true;
  EXODE_ASSIGN(const ModelFiles files, open_model_files(config.model));
  install_interrupt_handler();
  EXODE_ASSIGN(auto engine, open_engine(config, files));
  if (!o.logits.empty()) {
    EXODE_TRY(write_logits(*engine, o));
    return 0;
  }
  if (!files.tokenizer) return invalid(fmt::format("{} has no tokenizer.json", config.model));
  EXODE_ASSIGN(const Perplexity p, measure_perplexity(*engine, *files.tokenizer, o));
  const double mean = p.nll / static_cast<double>(p.tokens);
  if (o.json) {
    nlohmann::ordered_json out = {{"model", config.model},
                                  {"lines", p.lines},
                                  {"tokens", p.tokens},
                                  {"nll", mean},
                                  {"ppl", std::exp(mean)}};
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("perplexity {:.4f} ({:.5f} nats/token, {} tokens, {} lines)\n", std::exp(mean), mean,
               p.tokens, p.lines);
  }
  return 0;
}

}  // namespace

Run add_eval(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.description("Logits of every position of given ids, or perplexity of a JSON-lines file");
  add_engine_options(app, o->engine);
  app.add_option("--logits", o->logits, "JSON file with a list of token ids")
      ->check(CLI::ExistingFile);
  app.add_option("--out", o->out, "Where --logits writes tensor 'logits' [tokens, vocab] f32");
  app.add_option("--perplexity", o->perplexity, "JSON lines: [\"kind\", text] or a string each")
      ->check(CLI::ExistingFile);
  app.add_option("--lines", o->lines, "Only the first N lines, 0 = all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--segment-tokens", o->segment_tokens, "Longer lines are cut here")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_flag("--json", o->json, "Print the perplexity as one JSON object");
  return [o] { return run(*o); };
}

}  // namespace exode::app
