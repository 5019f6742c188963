// Ops over whole stretches of memory: made-up contents for synthetic models, and the yardsticks of
// bandwidth. Tensors are dense.
//   FillRandom:  floats: out[i] = low + (high − low) · random_unit(seed, i); u8: bytes 4i…4i+3 are
//                the low half of random_bits(seed, i). The same on every backend.
//   ReadWords:   out[p] = xor of the 32-bit words of part p of x; parts of read_part_words() words
//   CopyBytes:   out = x
#pragma once

#include "ops/op.h"

namespace exode::ops {

struct FillRandom {
  TensorView out;  // f32, f16, bf16 or u8, any shape
  uint64_t seed = 0;
  float low = 0, high = 1;
};
struct ReadWords {
  ConstTensorView x;  // any shape and type of whole words
  TensorView out;     // [parts] i32
};
struct CopyBytes {
  ConstTensorView x;
  TensorView out;  // as many bytes
};

// Whole 256-byte lines, so that every part can be read with the widest loads.
constexpr int64_t read_part_words(int64_t words, int64_t parts) {
  constexpr int64_t kLine = 64;
  return ((words + parts - 1) / parts + kLine - 1) / kLine * kLine;
}

void validate(const FillRandom&);
void validate(const ReadWords&);
void validate(const CopyBytes&);
Cost cost(const FillRandom&);
Cost cost(const ReadWords&);
Cost cost(const CopyBytes&);
constexpr std::string_view name(const FillRandom&) { return "fill_random"; }
constexpr std::string_view name(const ReadWords&) { return "read_words"; }
constexpr std::string_view name(const CopyBytes&) { return "copy_bytes"; }

}  // namespace exode::ops
