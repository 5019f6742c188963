// Rounds rows of f32 to the int8 and int4 layouts, symmetrically, with one scale for 128 inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/weight.h"

namespace exode {

inline constexpr int32_t kQuantizeGroup = 128;

// One row in the layout of strip 1, kInt8Group or kInt4Group: codes of packed_row_bytes, and
// ceil(cols / 128) scales. int8 scales reach 127 at the largest magnitude; int4 scales have the
// sign that puts it at -8, which gains a step over symmetric ±7.
void quantize_row(WeightLayout layout, std::span<const float> values, std::byte* codes,
                  float* scales);

}  // namespace exode
