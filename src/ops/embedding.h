// Rows of the embedding table:  out[r] = table[tokens[r]] · scale; zeros where tokens[r] < 0.
#pragma once

#include "ops/op.h"

namespace exode::ops {

struct Embedding {
  ConstTensorView tokens;  // [rows] i32; < 0 = padding. Ids are checked before they get here
  WeightView table;        // [vocab, hidden], kDense
  TensorView out;          // [rows, hidden] f32, f16 or bf16
  float scale = 1;
};

void validate(const Embedding&);
Cost cost(const Embedding&);
constexpr std::string_view name(const Embedding&) { return "embedding"; }

}  // namespace exode::ops
