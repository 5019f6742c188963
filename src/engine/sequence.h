// One request on its way through the engine. Engine thread only.
#pragma once

#include <map>
#include <vector>

#include "base/ids.h"
#include "engine/api.h"

namespace exode {

struct Sequence {
  RequestId id = 0;
  std::vector<TokenId> tokens;  // prompt, then output
  int32_t prompt_count = 0;
  int32_t computed = 0;    // tokens whose KV and state are in the caches
  int32_t tokens_max = 0;  // output
  std::vector<TokenId> stop_tokens;
  SamplingParams sampling;
  Engine::Sink sink;

  // Held while running.
  std::vector<BlockId> blocks;  // of KV group 0, in token order; enough for the longest outcome
  SlotId slot;

  // Penalty bookkeeping: every id of prompt and output, with its count in the output. Kept only
  // when a penalty is set.
  bool uses_history = false;
  std::map<TokenId, int32_t> history;

  // Steps submitted and not collected yet that have rows of this sequence, and the sample of the
  // newest of them that draws its next token (-1: none does).
  int32_t in_flight = 0;
  int32_t drawn = -1;

  // A finished sequence has no sink; it stays until no step uses its blocks.
  bool finished() const { return sink == nullptr; }
  int32_t length_soon() const { return length() + (drawn >= 0 ? 1 : 0); }
  bool ends_soon() const { return finished() || length_soon() >= length_max(); }
  int32_t length() const { return static_cast<int32_t>(tokens.size()); }
  int32_t output_count() const { return length() - prompt_count; }
  int32_t length_max() const { return prompt_count + tokens_max; }
};

}  // namespace exode
