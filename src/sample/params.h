// What a request may ask of the sampler. Defaults are OpenAI's; the server fills absent fields
// from the checkpoint's generation_config.json before it gets here.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace exode {

struct LogitBias {
  TokenId token = 0;
  float bias = 0;
};

struct SamplingParams {
  float temperature = 1;  // 0 = greedy
  float top_p = 1;        // (0, 1]
  float min_p = 0;        // [0, 1]
  int32_t top_k = 0;      // 0 = off
  float presence_penalty = 0, frequency_penalty = 0;
  float repetition_penalty = 1;  // > 0
  uint64_t seed = 0;             // same seed and prompt give the same tokens, whatever the batch
  std::vector<LogitBias> logit_bias;
};

}  // namespace exode
