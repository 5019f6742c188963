// From tokenizer.json and tokenizer_config.json to a Tokenizer. Files are untrusted: every type,
// id and size is checked.
#include <charconv>

#include "base/mapped_file.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_model.h"

namespace exode::text {
namespace {

using fields::element;

constexpr size_t kFileBytesMax = 100 << 20;
constexpr size_t kAddedBytesMax = 1024;

// Collects the added tokens of both files, then fills the tables that are searched.
class AddedTokenReader {
 public:
  explicit AddedTokenReader(Tokenizer::Impl& t) : t_(t) {}

  // "added_tokens" of tokenizer.json.
  Status read_list(const fields::array& tokens) {
    for (const element token : tokens) {
      EXODE_ASSIGN(const TokenId id, fields::id(fields::find(token, "id"), "an added token"));
      EXODE_TRY(read(token, id));
    }
    return Done{};
  }

  // "added_tokens_decoder" of tokenizer_config.json: an object whose keys are the ids. Qwen3.5
  // keeps its last tokens only there. Where both files have a token, tokenizer.json counts.
  Status read_decoder(const fields::object& tokens) {
    for (const auto& [key, token] : tokens) {
      int64_t id = -1;
      const char* end = key.data() + key.size();
      const auto [rest, error] = std::from_chars(key.data(), end, id);
      if (error != std::errc() || rest != end || id < 0 || id > fields::kIdMax) {
        return invalid(
            fmt::format("added_tokens_decoder: '{}' is not an id in 0…{}", key, fields::kIdMax));
      }
      EXODE_TRY(read(token, static_cast<TokenId>(id)));
    }
    return Done{};
  }

  void finish() {
    // Of two tokens that normalise to one string the special one is found.
    for (const bool special : {true, false}) {
      for (const AddedToken& token : tokens_) {
        if (token.special != special) continue;
        if (token.normalized) {
          t_.normalized_tokens.add(token, t_.normalize(token.content));
        } else {
          t_.raw_tokens.add(token, token.content);
        }
      }
    }
  }

 private:
  static Result<AddedToken> parse(element token, TokenId id) {
    AddedToken a;
    a.id = id;
    EXODE_ASSIGN(a.content, fields::text(token, "content", ""));
    if (a.content.empty() || a.content.size() > kAddedBytesMax) {
      return invalid(fmt::format("'content' has {} bytes; 1…{} are allowed", a.content.size(),
                                 kAddedBytesMax));
    }
    EXODE_ASSIGN(a.single_word, fields::flag(token, "single_word", false));
    EXODE_ASSIGN(a.lstrip, fields::flag(token, "lstrip", false));
    EXODE_ASSIGN(a.rstrip, fields::flag(token, "rstrip", false));
    EXODE_ASSIGN(a.special, fields::flag(token, "special", false));
    EXODE_ASSIGN(a.normalized, fields::flag(token, "normalized", !a.special));
    return a;
  }

  Status read(element element, TokenId id) {
    auto parsed = parse(element, id);
    if (!parsed.ok()) {
      return invalid(fmt::format("added token {}: {}", id, parsed.error().message));
    }
    const AddedToken& token = parsed.value();
    if (const auto known = t_.added.find(token.content)) {
      return *known == id ? Status(Done{}) : two_ids(token, *known);
    }
    // Decoding reads added tokens in the alphabet, too, like every entry.
    std::string bytes;
    const bool in_alphabet = bytes_of_token(token.content, bytes);
    const auto entry = (in_alphabet ? t_.vocabulary : t_.verbatim).find(bytes);
    if (entry && *entry != id) return two_ids(token, *entry);
    const auto index = static_cast<size_t>(id);
    if (index >= t_.bytes.size()) {
      t_.bytes.resize(index + 1);
      t_.special.resize(index + 1);
    } else if (!t_.bytes[index].empty() && t_.bytes[index] != bytes) {
      return invalid(fmt::format("the id {} of the added token '{}' belongs to another token", id,
                                 token.content));
    }
    t_.added.insert(token.content, id);
    t_.bytes[index] = bytes;
    t_.special[index] = token.special;
    tokens_.push_back(token);
    return Done{};
  }

  static Error two_ids(const AddedToken& token, TokenId other) {
    return invalid(
        fmt::format("the added token '{}' has the ids {} and {}", token.content, other, token.id));
  }

  Tokenizer::Impl& t_;
  std::vector<AddedToken> tokens_;
};

Status read_tokenizer(element root, Tokenizer::Impl& t, AddedTokenReader& added) {
  const auto model = fields::find(root, "model");
  if (!model) return invalid("'model' is missing");
  EXODE_TRY(read_model(*model, t));
  if (const auto n = fields::find(root, "normalizer")) EXODE_TRY(read_normalizer(*n, t));
  const auto pre_tokenizer = fields::find(root, "pre_tokenizer");
  if (!pre_tokenizer) {
    return unsupported("'pre_tokenizer' is missing: only byte-level BPE is supported");
  }
  EXODE_TRY(read_pre_tokenizer(*pre_tokenizer, t));
  if (fields::find(root, "added_tokens")) {
    EXODE_ASSIGN(const fields::array tokens, fields::list(root, "added_tokens"));
    EXODE_TRY(added.read_list(tokens));
  }
  // A file without a decoder is read as if it had the one that fits its vocabulary.
  if (const auto d = fields::find(root, "decoder")) EXODE_TRY(check_decoder(*d));
  if (const auto p = fields::find(root, "post_processor")) EXODE_TRY(read_post_processor(*p, t));
  return Done{};
}

// A string, or an object with "content".
Result<std::string> token_string(element config, std::string_view key) {
  const auto value = fields::find(config, key);
  if (!value) return std::string();
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS && (*value)["content"].get(text) != simdjson::SUCCESS) {
    return invalid(fmt::format("'{}' is neither a string nor has it a 'content'", key));
  }
  return std::string(text);
}

Status read_config(element root, Tokenizer::Impl& t, AddedTokenReader& added) {
  EXODE_ASSIGN(t.bos, token_string(root, "bos_token"));
  EXODE_ASSIGN(t.eos, token_string(root, "eos_token"));
  const auto tokens = fields::find(root, "added_tokens_decoder");
  if (!tokens) return Done{};
  fields::object decoder;
  if (tokens->get(decoder) != simdjson::SUCCESS) {
    return invalid("'added_tokens_decoder' is not an object");
  }
  return added.read_decoder(decoder);
}

// The parser owns what the element points into.
Result<element> parse_object(simdjson::dom::parser& parser, std::string_view json) {
  element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root)) {
    return invalid(simdjson::error_message(error));
  }
  if (!root.is_object()) return invalid("not a JSON object");
  return root;
}

Error in_file(std::string_view file, const Error& error) {
  return {error.code, fmt::format("{}: {}", file, error.message)};
}

}  // namespace

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view config_json) {
  auto impl = std::make_unique<Impl>();
  AddedTokenReader added(*impl);
  {
    simdjson::dom::parser parser;
    const auto root = parse_object(parser, tokenizer_json);
    if (!root.ok()) return in_file("tokenizer.json", root.error());
    const Status read = read_tokenizer(root.value(), *impl, added);
    if (!read.ok()) return in_file("tokenizer.json", read.error());
  }
  if (!config_json.empty()) {
    simdjson::dom::parser parser;
    const auto root = parse_object(parser, config_json);
    if (!root.ok()) return in_file("tokenizer_config.json", root.error());
    const Status read = read_config(root.value(), *impl, added);
    if (!read.ok()) return in_file("tokenizer_config.json", read.error());
  }
  added.finish();
  for (const auto* ids : {&impl->prefix, &impl->suffix}) {
    for (const TokenId id : *ids) {
      if (static_cast<size_t>(id) < impl->bytes.size()) continue;
      return invalid(
          fmt::format("tokenizer.json: the post-processor adds {}, which is no token", id));
    }
  }
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::load(const std::string& directory) {
  EXODE_ASSIGN(const std::string tokenizer,
               read_text_file(directory + "/tokenizer.json", kFileBytesMax));
  auto config = read_text_file(directory + "/tokenizer_config.json", kFileBytesMax);
  if (!config.ok() && config.error().code != ErrorCode::kNotFound) return config.error();
  auto parsed = parse(tokenizer, config.ok() ? config.value() : std::string());
  if (!parsed.ok()) return in_file(directory, parsed.error());
  return parsed;
}

}  // namespace exode::text
