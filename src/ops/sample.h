// From logits to the next token, one independent row per sampling sequence:
//   1. logits[id ≥ vocab_limit] = −inf (padding rows of the embedding), + logit_bias per entry
//   2. repetition penalty on every id of the history (prompt and output): l > 0 ? l / r : l · r;
//      frequency and presence penalties by the id's count in the output only (vLLM's reading)
//   3. temperature 0: arg-max, ties to the lower id. Otherwise softmax at l / temperature, then
//      top_k, then top_p over the remaining renormalised distribution (the smallest set with mass
//      ≥ top_p, order by probability then id), then min_p relative to the largest probability
//   4. inverse-CDF draw in id order with u = random_unit(seed, position): independent of the batch.
#pragma once

#include "ops/op.h"

namespace exode::ops {

// Plain data in device memory, one per row.
struct SampleRow {
  float temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;  // 0 = off
  float presence = 0, frequency = 0, repetition = 1;
  int32_t history_first = 0, history_count = 0;  // into Sample.history
  int32_t bias_first = 0, bias_count = 0;        // into Sample.bias
  int32_t active = 0;                            // 0 = padding row
  uint64_t seed = 0;
  uint64_t position = 0;  // index of the token being drawn, from the start of the sequence
};
struct TokenCount {
  int32_t id = 0;
  int32_t output_count = 0;  // 0 = in the prompt only
};
struct TokenBias {
  int32_t id = 0;
  float bias = 0;
};

struct Sample {
  TensorView logits;        // [n, vocab] f32, changed in place
  ConstTensorView rows;     // [n · sizeof(SampleRow)] u8
  ConstTensorView history;  // [entries · sizeof(TokenCount)] u8
  ConstTensorView bias;     // [entries · sizeof(TokenBias)] u8
  int32_t vocab_limit = 0;  // ids below it may be drawn
  TensorView next_token;    // [n] i32
};

void validate(const Sample&);
Cost cost(const Sample&);
constexpr std::string_view name(const Sample&) { return "sample"; }

}  // namespace exode::ops
