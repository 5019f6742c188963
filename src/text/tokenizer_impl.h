// What a tokenizer is made of; filled by tokenizer_json.cc, used by tokenizer.cc.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"

namespace exode::text {

struct Tokenizer::Impl {
  // Vocabulary and added tokens by id: raw bytes, not the printable alphabet of the file.
  std::vector<std::string> bytes;
  std::vector<bool> special;
  std::unordered_map<std::string, TokenId> vocabulary;  // raw bytes → id
  std::unordered_map<std::string, TokenId> added;       // content → id

  bool nfc = false;
  bool add_prefix_space = false;
  bool ignore_merges = false;
  std::vector<PieceSplitter> splitters;
  Bpe bpe;
  AddedTokenMatcher raw_tokens, normalized_tokens;
  std::vector<TokenId> prefix, suffix;  // of add_special_tokens
  std::string bos, eos;                 // of tokenizer_config.json

  std::string normalize(std::string_view text) const { return nfc ? to_nfc(text) : std::string(text); }
};

// The byte that a character of the printable alphabet (GPT-2's byte map) stands for, or −1.
int byte_of_character(uint32_t code_point);
// The bytes of a vocabulary string; characters outside the alphabet stand for themselves.
std::string bytes_of_token(std::string_view token);

}  // namespace exode::text
