// TakeTokens: tokens[r] = drawn[source[r]] where source[r] >= 0: what the step before drew, without
// a way through the host.
//
// Rows of the embedding table:  out[r] = table[tokens[r]] · scale; zeros where tokens[r] < 0.
#pragma once

#include "ops/op.h"

namespace exode::ops {

struct Embedding {
  ConstTensorView tokens;  // [rows] i32; < 0 = padding. Ids are checked before they get here
  WeightView table;        // [vocab, hidden], kDense or kInt8Group
  TensorView out;          // [rows, hidden] f32, f16 or bf16
  float scale = 1;
};

struct TakeTokens {
  TensorView tokens;       // [rows] i32, updated
  ConstTensorView source;  // [rows] i32: index into drawn, or -1
  ConstTensorView drawn;   // [n] i32
};

void validate(const Embedding&);
void validate(const TakeTokens&);
Cost cost(const Embedding&);
Cost cost(const TakeTokens&);
constexpr std::string_view name(const TakeTokens&) { return "take_tokens"; }
constexpr std::string_view name(const Embedding&) { return "embedding"; }

}  // namespace exode::ops
