// A small tokenizer.json to vary: the 256 bytes are tokens 0…255 in the order of their values.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace exode::text {

using Json = nlohmann::ordered_json;

inline std::string utf8(uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
}

// The character of the byte-level alphabet.
inline std::string letter(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  if (printable(byte)) return utf8(static_cast<uint32_t>(byte));
  uint32_t c = 256;
  for (int b = 0; b < byte; ++b) c += printable(b) ? 0 : 1;
  return utf8(c);
}

inline Json byte_level(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

// Byte-level, no pattern, no merges, no added tokens.
inline Json base_spec() {
  Json vocabulary = Json::object();
  for (int b = 0; b < 256; ++b) vocabulary[letter(b)] = b;
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level(false, false)},
          {"post_processor", nullptr},
          {"decoder", byte_level(false, false)},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
}

// Adds "left right" and its token, written in the alphabet; returns the token's id.
inline TokenId add_merge(Json& spec, const std::string& left, const std::string& right) {
  Json& vocabulary = spec["model"]["vocab"];
  if (!vocabulary.contains(left + right)) vocabulary[left + right] = vocabulary.size();
  spec["model"]["merges"].push_back(left + " " + right);
  return vocabulary[left + right];
}

inline void add_token(Json& spec, TokenId id, const std::string& content, Json flags = {}) {
  Json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  if (!flags.is_null()) token.update(flags);
  spec["added_tokens"].push_back(token);
}

inline Tokenizer make_tokenizer(const Json& spec, const Json& config = {}) {
  auto t = Tokenizer::parse(spec.dump(), config.is_null() ? "" : config.dump());
  EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.error().message);
  return std::move(t).value();
}

// The message of the refusal.
inline std::string refusal_of_text(const std::string& tokenizer_json,
                                   const std::string& config = "") {
  const auto t = Tokenizer::parse(tokenizer_json, config);
  return t.ok() ? "loads" : t.error().message;
}
inline std::string refusal(const Json& spec, const Json& config = {}) {
  return refusal_of_text(spec.dump(), config.is_null() ? "" : config.dump());
}

// Byte tokens as characters, others as <id>.
inline std::string show(const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) {
    out += id < 256 ? std::string(1, static_cast<char>(id)) : "<" + std::to_string(id) + ">";
  }
  return out;
}

inline std::string repeat(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace exode::text
