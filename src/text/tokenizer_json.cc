// From tokenizer.json (and tokenizer_config.json) to a Tokenizer. Files are untrusted: every type,
// id and size is checked, and what we do not implement is refused by name.
#include <fmt/format.h>
#include <simdjson.h>

#include <array>
#include <charconv>

#include "base/mapped_file.h"
#include "text/tokenizer_impl.h"

namespace exode::text {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kFileBytesMax = 100 << 20;
constexpr int64_t kIdMax = 1 << 24;

// Thrown inside this file only; parse() turns it into an Error.
struct Refusal {
  std::string message;
};

[[noreturn]] void refuse(std::string message) { throw Refusal{"tokenizer.json: " + std::move(message)}; }

bool is_null_or_absent(dom::element object, const char* key) {
  dom::element value;
  return object[key].get(value) != simdjson::SUCCESS || value.is_null();
}

std::string_view text_of(dom::element object, const char* key, std::string_view fallback) {
  if (is_null_or_absent(object, key)) return fallback;
  std::string_view value;
  if (object[key].get(value) != simdjson::SUCCESS) refuse(fmt::format("'{}' is not a string", key));
  return value;
}

bool flag_of(dom::element object, const char* key, bool fallback) {
  if (is_null_or_absent(object, key)) return fallback;
  bool value = false;
  if (object[key].get(value) != simdjson::SUCCESS) refuse(fmt::format("'{}' is not true or false", key));
  return value;
}

TokenId id_of(dom::element value, std::string_view what) {
  int64_t id = 0;
  if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= kIdMax) {
    refuse(fmt::format("{}: the id is not an integer in 0…{}", what, kIdMax - 1));
  }
  return static_cast<TokenId>(id);
}

dom::array list_of(dom::element object, const char* key) {
  dom::array value;
  if (object[key].get(value) != simdjson::SUCCESS) refuse(fmt::format("'{}' is missing or not a list", key));
  return value;
}

class Builder {
 public:
  explicit Builder(Tokenizer::Impl& t) : t_(t) {}

  void build(dom::element root) {
    dom::element model;
    if (root["model"].get(model) != simdjson::SUCCESS || !model.is_object()) refuse("'model' is missing");
    read_model(model);
    if (!is_null_or_absent(root, "normalizer")) read_normalizer(root["normalizer"]);
    if (!is_null_or_absent(root, "pre_tokenizer")) read_pre_tokenizer(root["pre_tokenizer"]);
    if (!is_null_or_absent(root, "added_tokens")) {
      for (dom::element token : list_of(root, "added_tokens")) {
        read_added(token, id_of(token["id"].value(), "an added token"));
      }
    }
    if (!is_null_or_absent(root, "decoder")) check_decoder(root["decoder"]);
    if (!is_null_or_absent(root, "post_processor")) read_post_processor(root["post_processor"]);
  }

  void read_config(dom::element config) {
    t_.bos = token_text(config, "bos_token");
    t_.eos = token_text(config, "eos_token");
    dom::object decoder;
    if (config["added_tokens_decoder"].get(decoder) != simdjson::SUCCESS) return;
    for (auto [key, token] : decoder) {
      int64_t id = -1;
      const auto [rest, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || rest != key.data() + key.size() || id < 0 || id >= kIdMax) {
        refuse(fmt::format("tokenizer_config.json: added_tokens_decoder: '{}' is not an id", key));
      }
      read_added(token, static_cast<TokenId>(id));
    }
  }

 private:
  void put(TokenId id, std::string bytes) {
    const auto index = static_cast<size_t>(id);
    if (index >= t_.bytes.size()) {
      t_.bytes.resize(index + 1);
      t_.special.resize(index + 1);
    }
    t_.bytes[index] = std::move(bytes);
  }

  void read_model(dom::element model) {
    const std::string_view type = text_of(model, "type", "BPE");
    if (type != "BPE") refuse(fmt::format("model type '{}' is not supported; supported: BPE", type));
    if (flag_of(model, "byte_fallback", false)) refuse("byte_fallback is not supported");
    if (!text_of(model, "continuing_subword_prefix", "").empty()) refuse("continuing_subword_prefix is not supported");
    if (!text_of(model, "end_of_word_suffix", "").empty()) refuse("end_of_word_suffix is not supported");
    t_.ignore_merges = flag_of(model, "ignore_merges", false);
    dom::object vocabulary;
    if (model["vocab"].get(vocabulary) != simdjson::SUCCESS) refuse("'vocab' is missing or not an object");
    t_.vocabulary.reserve(vocabulary.size());
    std::unordered_map<std::string_view, TokenId> by_name;
    by_name.reserve(vocabulary.size());
    std::vector<bool> seen;
    for (auto [name, value] : vocabulary) {
      const TokenId id = id_of(value, name);
      const auto index = static_cast<size_t>(id);
      if (index >= seen.size()) seen.resize(std::max(index + 1, seen.size() * 2));
      if (seen[index]) refuse(fmt::format("two tokens have the id {}", id));
      seen[index] = true;
      by_name.emplace(name, id);
      std::string bytes = bytes_of_token(name);
      t_.vocabulary.emplace(bytes, id);
      put(id, std::move(bytes));
    }
    if (by_name.empty()) refuse("the vocabulary is empty");
    for (int b = 0; b < 256; ++b) {
      const auto it = t_.vocabulary.find(std::string(1, static_cast<char>(b)));
      t_.bpe.set_byte_token(static_cast<uint8_t>(b), it == t_.vocabulary.end() ? -1 : it->second);
    }
    read_merges(model, by_name);
  }

  // "a b" or ["a", "b"]; both forms exist in the wild.
  void read_merges(dom::element model, const std::unordered_map<std::string_view, TokenId>& by_name) {
    const dom::array merges = list_of(model, "merges");
    t_.bpe.reserve(merges.size());
    int32_t rank = 0;
    std::string joined;
    for (dom::element merge : merges) {
      std::string_view left, right, text;
      dom::array pair;
      if (merge.get(text) == simdjson::SUCCESS) {
        const size_t space = text.find(' ', 1);
        if (space == std::string_view::npos) refuse(fmt::format("merge {}: '{}' is not a pair", rank, text));
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else if (merge.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
                 pair.at(0).get(left) != simdjson::SUCCESS || pair.at(1).get(right) != simdjson::SUCCESS) {
        refuse(fmt::format("merge {} is not a pair of strings", rank));
      }
      joined.assign(left).append(right);
      const auto a = by_name.find(left), b = by_name.find(right), c = by_name.find(joined);
      if (a == by_name.end() || b == by_name.end() || c == by_name.end()) {
        refuse(fmt::format("merge {}: '{}' + '{}' names a token outside the vocabulary", rank, left, right));
      }
      t_.bpe.add_merge(a->second, b->second, rank, c->second);
      ++rank;
    }
  }

  void read_normalizer(dom::element n) {
    const std::string_view type = text_of(n, "type", "");
    if (type == "NFC") {
      t_.nfc = true;
    } else if (type == "Sequence") {
      for (dom::element step : list_of(n, "normalizers")) read_normalizer(step);
    } else {
      refuse(fmt::format("normalizer '{}' is not supported; supported: NFC", type));
    }
  }

  void read_pre_tokenizer(dom::element p) {
    const std::string_view type = text_of(p, "type", "");
    if (type == "Sequence") {
      for (dom::element step : list_of(p, "pretokenizers")) read_pre_tokenizer(step);
    } else if (type == "ByteLevel") {
      t_.add_prefix_space = t_.add_prefix_space || flag_of(p, "add_prefix_space", true);
      if (flag_of(p, "use_regex", true)) t_.splitters.push_back(PieceSplitter::gpt2());
    } else if (type == "Digits") {
      t_.splitters.push_back(PieceSplitter::digits(flag_of(p, "individual_digits", false)));
    } else if (type == "Split") {
      read_split(p);
    } else {
      refuse(fmt::format("pre-tokenizer '{}' is not supported; supported: ByteLevel, Split, Digits, Sequence", type));
    }
  }

  void read_split(dom::element p) {
    const std::string_view behavior = text_of(p, "behavior", "Isolated");
    if (behavior != "Isolated" || flag_of(p, "invert", false)) {
      refuse(fmt::format("Split with behavior '{}' is not supported; supported: Isolated", behavior));
    }
    std::string_view regex;
    if (p["pattern"]["Regex"].get(regex) != simdjson::SUCCESS) refuse("Split without a Regex pattern is not supported");
    auto splitter = PieceSplitter::pattern(std::string(regex));
    if (!splitter.ok()) throw Refusal{splitter.error().message};
    t_.splitters.push_back(std::move(splitter).value());
  }

  void read_added(dom::element token, TokenId id) {
    AddedToken a;
    a.id = id;
    a.content = text_of(token, "content", "");
    if (a.content.empty()) refuse(fmt::format("added token {} has no content", id));
    a.single_word = flag_of(token, "single_word", false);
    a.lstrip = flag_of(token, "lstrip", false);
    a.rstrip = flag_of(token, "rstrip", false);
    a.normalized = flag_of(token, "normalized", !flag_of(token, "special", false));
    a.special = flag_of(token, "special", false);
    const auto [it, fresh] = t_.added.emplace(a.content, id);
    if (!fresh) {
      if (it->second != id) refuse(fmt::format("added token '{}' has the ids {} and {}", a.content, it->second, id));
      return;
    }
    put(id, a.content);
    t_.special[static_cast<size_t>(id)] = a.special;
    if (a.normalized) {
      t_.normalized_tokens.add(a, t_.normalize(a.content));
    } else {
      t_.raw_tokens.add(a, a.content);
    }
  }

  void check_decoder(dom::element d) {
    const std::string_view type = text_of(d, "type", "");
    if (type == "ByteLevel") return;
    if (type != "Sequence") refuse(fmt::format("decoder '{}' is not supported; supported: ByteLevel", type));
    for (dom::element step : list_of(d, "decoders")) check_decoder(step);
  }

  void read_post_processor(dom::element p) {
    const std::string_view type = text_of(p, "type", "");
    if (type == "ByteLevel") return;
    if (type == "Sequence") {
      for (dom::element step : list_of(p, "processors")) read_post_processor(step);
    } else if (type == "TemplateProcessing") {
      read_template(p);
    } else {
      refuse(fmt::format("post-processor '{}' is not supported; supported: ByteLevel, TemplateProcessing", type));
    }
  }

  void read_template(dom::element p) {
    bool before = true;
    for (dom::element item : list_of(p, "single")) {
      std::string_view name;
      if (item["Sequence"].error() == simdjson::SUCCESS) {
        before = false;
      } else if (item["SpecialToken"]["id"].get(name) == simdjson::SUCCESS) {
        for (dom::element id : list_of(p["special_tokens"][name].value(), "ids")) {
          (before ? t_.prefix : t_.suffix).push_back(id_of(id, name));
        }
      } else {
        refuse("TemplateProcessing: unknown piece");
      }
    }
  }

  // A string, or an object with "content".
  static std::string token_text(dom::element config, const char* key) {
    std::string_view text;
    if (config[key].get(text) == simdjson::SUCCESS) return std::string(text);
    if (config[key]["content"].get(text) == simdjson::SUCCESS) return std::string(text);
    return {};
  }

  Tokenizer::Impl& t_;
};

}  // namespace

int byte_of_character(uint32_t c) {
  // Printable Latin-1 stands for itself; the other 68 bytes follow at U+0100 in ascending order.
  static const std::array<int16_t, 324> table = [] {
    std::array<int16_t, 324> t{};
    t.fill(-1);
    size_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      t[printable ? static_cast<size_t>(b) : next++] = static_cast<int16_t>(b);
    }
    return t;
  }();
  return c < table.size() ? table[c] : -1;
}

std::string bytes_of_token(std::string_view token) {
  std::string out;
  for (uint32_t c : decode_utf8(token).points) {
    const int byte = byte_of_character(c);
    if (byte < 0) return std::string(token);
    out.push_back(static_cast<char>(byte));
  }
  return out;
}

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view config_json) {
  auto impl = std::make_unique<Impl>();
  try {
    dom::parser parser;
    Builder builder(*impl);
    dom::element root;
    if (const auto error = parser.parse(simdjson::padded_string(tokenizer_json)).get(root)) {
      return invalid(fmt::format("tokenizer.json: {}", simdjson::error_message(error)));
    }
    if (!root.is_object()) return invalid("tokenizer.json: not a JSON object");
    builder.build(root);
    if (!config_json.empty()) {
      dom::parser config_parser;
      dom::element config;
      if (const auto error = config_parser.parse(simdjson::padded_string(config_json)).get(config)) {
        return invalid(fmt::format("tokenizer_config.json: {}", simdjson::error_message(error)));
      }
      builder.read_config(config);
    }
  } catch (const Refusal& refusal) {
    return invalid(refusal.message);
  } catch (const simdjson::simdjson_error& error) {
    return invalid(fmt::format("tokenizer.json: {}", error.what()));
  }
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::load(const std::string& directory) {
  EXODE_ASSIGN(const std::string tokenizer, read_text_file(directory + "/tokenizer.json", kFileBytesMax));
  auto config = read_text_file(directory + "/tokenizer_config.json", kFileBytesMax);
  if (!config.ok() && config.error().code != ErrorCode::kNotFound) return config.error();
  auto parsed = parse(tokenizer, config.ok() ? config.value() : std::string());
  if (!parsed.ok()) return invalid(fmt::format("{}: {}", directory, parsed.error().message));
  return parsed;
}

}  // namespace exode::text
