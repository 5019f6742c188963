#include "weights/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "weights/pack.h"

namespace exode {
namespace {

using Group = std::array<uint8_t, kQuantizeGroup>;

// Largest magnitude, with its sign.
float peak_of(std::span<const float> values) {
  float peak = 0;
  for (const float v : values) peak = std::abs(v) > std::abs(peak) ? v : peak;
  return peak;
}

Group round_group(std::span<const float> values, float scale, int32_t low, int32_t high) {
  Group codes;
  codes.fill(static_cast<uint8_t>(-low));
  if (scale == 0) return codes;
  const float inverse = 1 / scale;
  for (size_t i = 0; i < values.size(); ++i) {
    const float scaled = values[i] * inverse;
    const auto code = static_cast<int32_t>(scaled + std::copysign(0.5f, scaled));
    codes[i] = static_cast<uint8_t>(std::clamp(code, low, high) - low);
  }
  return codes;
}

}  // namespace

void quantize_row(WeightLayout layout, std::span<const float> values, std::byte* codes,
                  float* scales) {
  EXODE_CHECK(layout == WeightLayout::kInt8Group || layout == WeightLayout::kInt4Group,
              "only int8 and int4 are made here");
  for (size_t at = 0; at < values.size(); at += kQuantizeGroup) {
    const auto group = values.subspan(at, std::min<size_t>(kQuantizeGroup, values.size() - at));
    const float peak = peak_of(group);
    if (layout == WeightLayout::kInt8Group) {
      const float scale = std::abs(peak) / 127;
      const Group rounded = round_group(group, scale, -kInt8Zero, 127);
      std::memcpy(codes, rounded.data(), rounded.size());
      codes += rounded.size();
      *scales++ = scale;
    } else {
      const float scale = peak / -8;
      pack_int4_block(round_group(group, scale, -8, 7), codes);
      codes += kInt4Block / 2;
      *scales++ = scale;
    }
  }
}

}  // namespace exode
