// Tokenizer of a Hugging Face checkpoint: tokenizer.json (byte-level BPE) with the added tokens of
// tokenizer_config.json merged in. Equal to the `tokenizers` package on the same file.
//
//   EXODE_ASSIGN(auto tokenizer, text::Tokenizer::load("/models/x"));
//   std::vector<TokenId> ids = tokenizer.encode("Hello", {});
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace exode::text {

// A stretch of prompt text and whether special-token strings in it count (template literals) or
// are plain text (user data).
struct Span {
  std::string text;
  bool literal = true;
};

struct EncodeOptions {
  bool parse_special = true;        // "<|im_end|>" in the text becomes the token
  bool add_special_tokens = false;  // what the post-processor adds (for example BOS of Llama 3)
};

class Tokenizer {
 public:
  static Result<Tokenizer> load(const std::string& directory);
  // `config` is tokenizer_config.json or empty.
  static Result<Tokenizer> parse(std::string_view tokenizer_json, std::string_view config_json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Invalid UTF-8 is replaced by U+FFFD first. const and thread-safe.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const;
  // Spans are tokenised as one text (merges may cross span borders), except that special tokens
  // are recognised only inside literal spans.
  std::vector<TokenId> encode_spans(std::span<const Span> spans) const;
  // Whole sequence at once; bytes that are not UTF-8 become U+FFFD. Unknown ids decode to nothing.
  std::string decode(std::span<const TokenId> ids, bool skip_special) const;

  // Raw bytes of one token (not necessarily whole characters).
  std::string_view token_bytes(TokenId id) const;
  std::optional<TokenId> find(std::string_view token) const;  // added token or vocabulary entry
  bool is_special(TokenId id) const;
  int32_t size() const;                 // 1 + highest id that has a string
  std::optional<TokenId> eos() const;   // of tokenizer_config.json
  std::string_view bos_string() const;  // empty when none
  std::string_view eos_string() const;

  struct Impl;  // text/tokenizer_impl.h

 private:
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Incremental detokenisation: emits only complete UTF-8; an invalid byte becomes U+FFFD as soon
// as the following byte proves it invalid. Concatenated output equals Tokenizer::decode.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);
  std::string feed(TokenId id);
  std::string finish();  // what was held back

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace exode::text
