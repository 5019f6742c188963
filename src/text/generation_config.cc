#include "text/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "text/tokenizer.h"

namespace exode::text {
namespace {

using nlohmann::json;

constexpr size_t kFileBytesMax = 16 << 20;

// An absent file reads as an empty object.
Result<json> read_object(const std::string& path) {
  auto source = read_text_file(path, kFileBytesMax);
  if (!source.ok() && source.error().code == ErrorCode::kNotFound) return json::object();
  if (!source.ok()) return source.error();
  json parsed = json::parse(source.value(), nullptr, false);
  if (!parsed.is_object()) return invalid(fmt::format("{}: not a JSON object", path));
  return parsed;
}

template <class T>
Status read_number(const json& object, const char* key, double low, double high,
                   std::optional<T>& out) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return Done{};
  const double value = it->is_number() ? it->get<double>() : low - 1;
  if (!(value >= low && value <= high)) {
    return invalid(fmt::format("generation_config.json: {}: {} is not a number in {}…{}", key,
                               it->dump(), low, high));
  }
  out = static_cast<T>(value);
  return Done{};
}

void add_stop_ids(const json& object, std::vector<TokenId>& stops) {
  const auto it = object.find("eos_token_id");
  if (it == object.end()) return;
  const json list = it->is_array() ? *it : json::array({*it});
  for (const json& id : list) {
    if (id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX) {
      stops.push_back(id.get<TokenId>());
    }
  }
}

}  // namespace

Result<GenerationConfig> load_generation_config(const std::string& directory,
                                                const Tokenizer* tokenizer) {
  EXODE_ASSIGN(const json generation, read_object(directory + "/generation_config.json"));
  EXODE_ASSIGN(const json config, read_object(directory + "/config.json"));
  GenerationConfig out;
  EXODE_TRY(read_number(generation, "temperature", 0, 100, out.temperature));
  EXODE_TRY(read_number(generation, "top_p", 1e-6, 1, out.top_p));
  EXODE_TRY(read_number(generation, "min_p", 0, 1, out.min_p));
  EXODE_TRY(read_number(generation, "top_k", 0, INT32_MAX, out.top_k));
  EXODE_TRY(read_number(generation, "repetition_penalty", 1e-3, 100, out.repetition_penalty));
  if (generation.contains("do_sample") && generation["do_sample"] == false) out.temperature = 0.0f;

  std::vector<TokenId>& stops = out.stop_tokens;
  add_stop_ids(generation, stops);
  add_stop_ids(config, stops);
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) {
    add_stop_ids(*text, stops);
  }
  if (tokenizer != nullptr) {
    if (const auto eos = tokenizer->eos()) stops.push_back(*eos);
    for (const char* name : {"<|im_end|>", "<|endoftext|>"}) {
      const auto id = tokenizer->find(name);
      if (id && tokenizer->is_special(*id)) stops.push_back(*id);
    }
  }
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return out;
}

}  // namespace exode::text
