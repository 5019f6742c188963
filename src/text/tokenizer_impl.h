// What a tokenizer is made of; filled by tokenizer_json.cc, used by tokenizer.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/token_index.h"
#include "text/tokenizer.h"

namespace exode::text {

struct Tokenizer::Impl {
  // Vocabulary and added tokens by id: raw bytes, not the printable alphabet of the file.
  std::vector<std::string> bytes;
  std::vector<bool> special;
  TokenIndex vocabulary;  // entries written in the alphabet, by their bytes
  TokenIndex verbatim;    // other entries, which no text leads to
  TokenIndex added;       // added tokens, by content

  bool nfc = false;
  bool ignore_merges = false;
  // Steps before ByteLevel, which is the last one: it may put a space before every piece, and may
  // then split by a pattern.
  std::vector<PieceSplitter> splitters;
  bool add_prefix_space = false;
  std::optional<PieceSplitter> byte_level_splitter;
  Bpe bpe;
  AddedTokenMatcher raw_tokens, normalized_tokens;
  std::vector<TokenId> prefix, suffix;  // of add_special_tokens
  std::string bos, eos;                 // of tokenizer_config.json

  std::string normalize(std::string_view text) const {
    return nfc ? to_nfc(text) : std::string(text);
  }
};

}  // namespace exode::text
