// What a checkpoint says about generating: sampling defaults and where to stop.
//
// Stop tokens are the union of every place that names one: eos_token_id of generation_config.json
// and config.json (a number or a list, top level or text_config), the tokenizer's eos_token, and
// the ChatML terminators when the vocabulary has them. Qwen's config.json alone would never stop
// a chat.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace exode::text {

class Tokenizer;

struct GenerationConfig {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  std::vector<TokenId> stop_tokens;  // sorted, unique
};

// `tokenizer` may be null (a checkpoint without one). Missing files are no error, broken ones are.
// do_sample = false becomes temperature 0.
Result<GenerationConfig> load_generation_config(const std::string& directory,
                                                const Tokenizer* tokenizer);

}  // namespace exode::text
