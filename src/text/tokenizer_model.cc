#include "text/tokenizer_model.h"

#include "text/byte_alphabet.h"

namespace exode::text {
namespace {

using fields::element;

class ModelReader {
 public:
  ModelReader(element model, Tokenizer::Impl& tokenizer) : model_(model), t_(tokenizer) {}

  Status read() {
    EXODE_TRY(check_kind());
    EXODE_TRY(read_vocabulary());
    std::string byte;
    for (int b = 0; b < 256; ++b) {
      byte.assign(1, static_cast<char>(b));
      if (const auto id = t_.vocabulary.find(byte)) {
        t_.bpe.set_byte_token(static_cast<uint8_t>(b), *id);
      }
    }
    EXODE_TRY(read_unknown());
    return read_merges();
  }

 private:
  Status check_kind() {
    EXODE_ASSIGN(const std::string_view type, fields::text(model_, "type", "BPE"));
    if (type != "BPE") {
      return unsupported(fmt::format("model type '{}' is not supported; supported: BPE", type));
    }
    EXODE_ASSIGN(const bool fallback, fields::flag(model_, "byte_fallback", false));
    if (fallback) return unsupported("byte_fallback is not supported: not a byte-level model");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      EXODE_ASSIGN(const std::string_view affix, fields::text(model_, key, ""));
      if (!affix.empty()) return unsupported(fmt::format("{} is not supported", key));
    }
    if (const auto dropout = fields::find(model_, "dropout")) {
      double value = 0;
      if (dropout->get(value) != simdjson::SUCCESS || value != 0) {
        return unsupported("dropout must be null or 0: encoding would be random");
      }
    }
    EXODE_ASSIGN(t_.ignore_merges, fields::flag(model_, "ignore_merges", false));
    return Done{};
  }

  Status read_vocabulary() {
    fields::object vocabulary;
    if (model_["vocab"].get(vocabulary) != simdjson::SUCCESS) {
      return invalid("'vocab' is missing or not an object");
    }
    if (vocabulary.size() == 0) return invalid("the vocabulary is empty");
    t_.vocabulary.reserve(vocabulary.size());
    t_.bytes.reserve(vocabulary.size() + 1024);
    std::vector<bool> seen;
    std::string bytes;
    for (const auto& [name, value] : vocabulary) {
      EXODE_ASSIGN(const TokenId id, fields::id(value, name));
      const auto index = static_cast<size_t>(id);
      if (index >= t_.bytes.size()) t_.bytes.resize(index + 1);
      seen.resize(t_.bytes.size());
      if (seen[index]) return invalid(fmt::format("two tokens have the id {}", id));
      seen[index] = true;
      const bool in_alphabet = bytes_of_token(name, bytes);
      TokenIndex& names = in_alphabet ? t_.vocabulary : t_.verbatim;
      if (!names.insert(bytes, id)) {
        return invalid(fmt::format("the token '{}' appears twice", name));
      }
      t_.bytes[index] = bytes;
    }
    t_.special.resize(t_.bytes.size());
    return Done{};
  }

  Status read_unknown() {
    EXODE_ASSIGN(const std::string_view name, fields::text(model_, "unk_token", ""));
    if (name.empty()) return Done{};
    std::string bytes;
    const bool in_alphabet = bytes_of_token(name, bytes);
    const auto id = (in_alphabet ? t_.vocabulary : t_.verbatim).find(bytes);
    if (!id) return invalid(fmt::format("unk_token '{}' is not in the vocabulary", name));
    EXODE_ASSIGN(const bool fuse, fields::flag(model_, "fuse_unk", false));
    t_.bpe.set_unknown(*id, fuse);
    return Done{};
  }

  // "a b" or ["a", "b"]; both forms exist in the wild.
  Status read_merges() {
    EXODE_ASSIGN(const fields::array merges, fields::list(model_, "merges"));
    t_.bpe.reserve(merges.size());
    int32_t rank = 0;
    for (const element merge : merges) {
      std::string_view left, right, text;
      fields::array pair;
      if (merge.get(text) == simdjson::SUCCESS) {
        const size_t space = text.find(' ');
        if (space == std::string_view::npos) {
          return invalid(fmt::format("merge {}: '{}' is not a pair", rank, text));
        }
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else if (merge.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
                 pair.at(0).get(left) != simdjson::SUCCESS ||
                 pair.at(1).get(right) != simdjson::SUCCESS) {
        return invalid(fmt::format("merge {} is not a pair of strings", rank));
      }
      if (!add_merge(left, right, rank)) {
        return invalid(fmt::format("merge {}: '{}' + '{}' names a token outside the vocabulary",
                                   rank, left, right));
      }
      ++rank;
    }
    return Done{};
  }

  bool add_merge(std::string_view left, std::string_view right, int32_t rank) {
    const bool left_in_alphabet = bytes_of_token(left, left_);
    const bool right_in_alphabet = bytes_of_token(right, right_);
    const auto a = (left_in_alphabet ? t_.vocabulary : t_.verbatim).find(left_);
    const auto b = (right_in_alphabet ? t_.vocabulary : t_.verbatim).find(right_);
    const bool both = left_in_alphabet && right_in_alphabet;
    if (both) {
      left_ += right_;
    } else {
      left_.assign(left).append(right);
    }
    const auto merged = (both ? t_.vocabulary : t_.verbatim).find(left_);
    if (!a || !b || !merged) return false;
    t_.bpe.add_merge(*a, *b, rank, *merged);
    return true;
  }

  element model_;
  Tokenizer::Impl& t_;
  std::string left_, right_;  // kept for their memory
};

// More than any tokenizer has; each costs a pass over every text.
constexpr size_t kSplittersMax = 32;

Status add_splitter(Tokenizer::Impl& t, PieceSplitter splitter) {
  if (t.splitters.size() >= kSplittersMax) {
    return unsupported(fmt::format("more than {} pre-tokenizer steps", kSplittersMax));
  }
  t.splitters.push_back(std::move(splitter));
  return Done{};
}

Status read_split(element p, Tokenizer::Impl& t) {
  EXODE_ASSIGN(const std::string_view behavior, fields::text(p, "behavior", "Isolated"));
  EXODE_ASSIGN(const bool invert, fields::flag(p, "invert", false));
  if (behavior != "Isolated" || invert) {
    return unsupported(fmt::format(
        "pre-tokenizer Split with behavior '{}'{} is not supported; supported: 'Isolated'",
        behavior, invert ? " and invert" : ""));
  }
  std::string_view regex;
  if (p["pattern"]["Regex"].get(regex) != simdjson::SUCCESS) {
    return unsupported("pre-tokenizer Split: the pattern is not {\"Regex\": \"…\"}");
  }
  EXODE_ASSIGN(PieceSplitter splitter, PieceSplitter::pattern(std::string(regex)));
  return add_splitter(t, std::move(splitter));
}

Status read_byte_level(element p, Tokenizer::Impl& t, bool* byte_level) {
  *byte_level = true;
  EXODE_ASSIGN(t.add_prefix_space, fields::flag(p, "add_prefix_space", true));
  EXODE_ASSIGN(const bool use_regex, fields::flag(p, "use_regex", true));
  if (use_regex) t.byte_level_splitter = PieceSplitter::gpt2();
  return Done{};
}

Status read_pre_tokenizer_step(element p, Tokenizer::Impl& t, bool* byte_level) {
  EXODE_ASSIGN(const std::string_view type, fields::text(p, "type", ""));
  if (type == "Sequence") {
    EXODE_ASSIGN(const fields::array steps, fields::list(p, "pretokenizers"));
    for (const element step : steps) EXODE_TRY(read_pre_tokenizer_step(step, t, byte_level));
    return Done{};
  }
  if (*byte_level) {
    return unsupported(fmt::format("pre-tokenizer '{}' after ByteLevel is not supported", type));
  }
  if (type == "ByteLevel") return read_byte_level(p, t, byte_level);
  if (type == "Split") return read_split(p, t);
  if (type == "Digits") {
    EXODE_ASSIGN(const bool each, fields::flag(p, "individual_digits", false));
    return add_splitter(t, PieceSplitter::digits(each));
  }
  return unsupported(fmt::format(
      "pre-tokenizer '{}' is not supported; supported: ByteLevel, Split, Digits, Sequence", type));
}

// What one template puts around the text.
Status read_template(element p, Tokenizer::Impl& t) {
  std::vector<TokenId> before, after;
  bool text_seen = false;
  EXODE_ASSIGN(const fields::array pieces, fields::list(p, "single"));
  for (const element piece : pieces) {
    std::string_view name;
    if (piece["SpecialToken"]["id"].get(name) == simdjson::SUCCESS) {
      fields::array ids;
      if (p["special_tokens"][name]["ids"].get(ids) != simdjson::SUCCESS) {
        return invalid(fmt::format("post-processor: no ids for the special token '{}'", name));
      }
      for (const element value : ids) {
        EXODE_ASSIGN(const TokenId id, fields::id(value, name));
        (text_seen ? after : before).push_back(id);
      }
    } else if (piece["Sequence"].error() == simdjson::SUCCESS && !text_seen) {
      text_seen = true;
    } else {
      return invalid("post-processor TemplateProcessing: 'single' has a piece we do not know");
    }
  }
  if (!text_seen) return invalid("post-processor TemplateProcessing: 'single' has no Sequence");
  t.prefix.insert(t.prefix.begin(), before.begin(), before.end());
  t.suffix.insert(t.suffix.end(), after.begin(), after.end());
  return Done{};
}

}  // namespace

Status read_model(element model, Tokenizer::Impl& tokenizer) {
  return ModelReader(model, tokenizer).read();
}

Status read_normalizer(element n, Tokenizer::Impl& t) {
  EXODE_ASSIGN(const std::string_view type, fields::text(n, "type", ""));
  if (type == "NFC") {
    t.nfc = true;
    return Done{};
  }
  if (type != "Sequence") {
    return unsupported(
        fmt::format("normalizer '{}' is not supported; supported: NFC, Sequence", type));
  }
  EXODE_ASSIGN(const fields::array steps, fields::list(n, "normalizers"));
  for (const element step : steps) EXODE_TRY(read_normalizer(step, t));
  return Done{};
}

Status read_pre_tokenizer(element p, Tokenizer::Impl& t) {
  bool byte_level = false;
  EXODE_TRY(read_pre_tokenizer_step(p, t, &byte_level));
  if (byte_level) return Done{};
  return unsupported("the pre-tokenizer has no ByteLevel step: only byte-level BPE is supported");
}

Status check_decoder(element d) {
  EXODE_ASSIGN(const std::string_view type, fields::text(d, "type", ""));
  if (type == "ByteLevel") return Done{};
  bool byte_level = false;
  if (type == "Sequence") {
    EXODE_ASSIGN(const fields::array steps, fields::list(d, "decoders"));
    for (const element step : steps) {
      EXODE_ASSIGN(const std::string_view name, fields::text(step, "type", ""));
      if (name != "ByteLevel" && name != "Fuse") {
        return unsupported(
            fmt::format("decoder '{}' is not supported; supported: ByteLevel", name));
      }
      byte_level = byte_level || name == "ByteLevel";
    }
  }
  if (byte_level) return Done{};
  return unsupported(fmt::format("decoder '{}' is not supported; supported: ByteLevel", type));
}

Status read_post_processor(element p, Tokenizer::Impl& t) {
  EXODE_ASSIGN(const std::string_view type, fields::text(p, "type", ""));
  if (type == "ByteLevel") return Done{};  // moves offsets only
  if (type == "TemplateProcessing") return read_template(p, t);
  if (type != "Sequence") {
    return unsupported(
        fmt::format("post-processor '{}' is not supported; supported: ByteLevel, "
                    "TemplateProcessing, Sequence",
                    type));
  }
  EXODE_ASSIGN(const fields::array steps, fields::list(p, "processors"));
  for (const element step : steps) EXODE_TRY(read_post_processor(step, t));
  return Done{};
}

}  // namespace exode::text
