// Input that begins with "{" is tokenizer.json, a zero byte and tokenizer_config.json: they must
// give a tokenizer or an error with a message. With other input the first byte chooses a small
// tokenizer and the rest is text, and ids, for it: what encoding and decoding promise must hold.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using exode::TokenId;
using exode::text::Span;
using exode::text::StreamDecoder;
using exode::text::Tokenizer;

void require(bool holds) {
  if (!holds) std::abort();
}

// Most bytes have tokens: ASCII, and what text in UTF-8 is made of up to the lead byte 0xef.
std::string small_vocabulary() {
  std::string vocabulary;
  int id = 0;
  const auto add = [&](std::string_view token) {
    vocabulary += (id == 0 ? "\"" : ",\"") + std::string(token) + "\":" + std::to_string(id);
    ++id;
  };
  for (char c = 33; c < 127; ++c) {
    const std::string token(1, c);
    add(c == '"' || c == '\\' ? "\\" + token : token);
  }
  for (uint32_t c = 256; c < 323; ++c) {
    std::string token;
    exode::text::append_utf8(c, token);
    add(token);
  }
  for (uint32_t c = 0xa1; c < 0xf0; ++c) {
    std::string token;
    exode::text::append_utf8(c, token);
    if (c != 0xad) add(token);
  }
  for (const char* token : {"ab", "abab", "\u0120\u0120", "\u0120a", "aa", "aaaa"}) add(token);
  return vocabulary;
}

// `steps` are those before ByteLevel, each with a comma behind it.
Tokenizer small_tokenizer(const std::string& steps, bool use_regex) {
  const std::string json =
      R"({"added_tokens": [
        {"id": 500, "content": "<s>", "special": true, "lstrip": true},
        {"id": 501, "content": "<n>", "special": false, "normalized": false, "rstrip": true},
        {"id": 502, "content": "<e)"
      "\u0301"
      R"(>", "special": true, "normalized": true},
        {"id": 503, "content": "  ", "special": false, "normalized": false},
        {"id": 504, "content": "tok", "single_word": true, "normalized": true}],
      "normalizer": {"type": "NFC"},
      "pre_tokenizer": {"type": "Sequence", "pretokenizers": [)" +
      steps + R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": )" +
      (use_regex ? "true" : "false") + R"(}]},
      "model": {"type": "BPE", "vocab": {)" +
      small_vocabulary() +
      R"(}, "merges":
        ["a b", "ab ab", ")"
      "\u0120 \u0120"
      R"(", ")"
      "\u0120 a"
      R"(", "a a", "aa aa"]}})";
  auto tokenizer = Tokenizer::parse(json, "");
  require(tokenizer.ok());
  return std::move(tokenizer).value();
}

void check_text(const Tokenizer& t, std::string_view text) {
  const std::vector<TokenId> ids = t.encode(text, {});
  require(ids == t.encode(exode::text::to_valid_utf8(text), {}));
  for (const TokenId id : ids) require(!t.token_bytes(id).empty());
  const std::vector<Span> literal = {{std::string(text), true}};
  require(t.encode_spans(literal) == ids);
  // User data: whatever the spans, no special token comes from it.
  std::vector<Span> spans;
  for (size_t i = 0; i < text.size(); i += 5)
    spans.push_back({std::string(text.substr(i, 5)), false});
  for (const TokenId id : t.encode_spans(spans)) require(!t.is_special(id));
  for (const TokenId id : t.encode(text, {.parse_special = false})) require(!t.is_special(id));
  for (size_t i = 0; i < spans.size(); ++i) spans[i].literal = i % 2 == 0;
  (void)t.encode_spans(spans);
}

void check_ids(const Tokenizer& t, std::string_view bytes) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    ids.push_back(static_cast<uint8_t>(bytes[i]) + 2 * static_cast<uint8_t>(bytes[i + 1]) - 8);
  }
  for (const bool skip : {false, true}) {
    StreamDecoder stream(t, skip);
    std::string joined;
    for (const TokenId id : ids) {
      const std::string part = stream.feed(id);
      require(exode::text::is_valid_utf8(part));
      joined += part;
    }
    joined += stream.finish();
    require(joined == t.decode(ids, skip));
  }
}

void check_files(std::string_view input) {
  const size_t zero = std::min(input.find('\0'), input.size());
  const auto parsed =
      Tokenizer::parse(input.substr(0, zero), input.substr(std::min(zero + 1, input.size())));
  if (!parsed.ok()) {
    require(!parsed.error().message.empty());
    return;
  }
  check_text(parsed.value(), "Hello <s> w\u00f6rld\r\n  42 e\u0301 <|im_end|>\xff");
  check_ids(parsed.value(), input.substr(0, 200));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer scanner = small_tokenizer("", true);
  static const Tokenizer digits =
      small_tokenizer(R"({"type": "Digits", "individual_digits": false},)", false);
  static const Tokenizer regex =
      small_tokenizer(R"({"type": "Split", "behavior": "Isolated",)"
                      R"("pattern": {"Regex": "\\p{N}{1,3}| ?\\w+|\\s+"}},)",
                      false);
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input[0] == '{') {
    check_files(input);
    return 0;
  }
  const Tokenizer* const tokenizers[] = {&scanner, &digits, &regex};
  const Tokenizer& t = *tokenizers[data[0] % 3];
  check_text(t, input.substr(1));
  check_ids(t, input.substr(1));
  return 0;
}
