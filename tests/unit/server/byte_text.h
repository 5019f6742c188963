// The smallest text side: token id = byte, then four added tokens, and a ChatML template.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace exode::server {

inline constexpr TokenId kImStart = 256, kImEnd = 257, kOpen = 258, kClose = 259;

// tokenizer.json and a ChatML template, in text/.
std::string byte_tokenizer_json();
std::string chat_template_source();

// Bytes as ids, with the four added tokens recognised.
std::vector<TokenId> to_ids(std::string_view text);

}  // namespace exode::server
