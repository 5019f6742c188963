// HostWeight to the device layouts of tensor/weight.h, by rows. Nothing here touches a device:
// output goes to host memory that the loader copies in.
#pragma once

#include <cstdint>
#include <span>

#include "weights/host_weight.h"

namespace exode {

inline constexpr uint8_t kInt4PlainZero = 8;  // what an absent zeros array stands for

// Bytes of one row of codes in the device layout.
size_t packed_row_bytes(WeightLayout layout, DType dtype, int32_t cols);

inline constexpr int32_t kPackRows = 32;  // rows packed together: the largest strip

// Rows [first, first + count) of a kInt4Group weight as they lie in a matrix with this strip, which
// divides kPackRows: count is at most that, and a multiple of strip.
struct PackedRows {
  int32_t first = 0, count = 0, strip = 1;
};
void pack_int4(const HostWeight& weight, const PackedRows& rows, std::byte* out);

// Their scales or zeros: `values` are [rows, groups].
template <class T>
void pack_groups(std::span<const T> values, size_t groups, const PackedRows& rows, T* out) {
  const auto strip = static_cast<size_t>(rows.strip);
  for (size_t i = 0; i < static_cast<size_t>(rows.count); ++i) {
    const T* from = values.data() + (static_cast<size_t>(rows.first) + i) * groups;
    T* to = out + i / strip * strip * groups + i % strip;
    for (size_t g = 0; g < groups; ++g) to[g * strip] = from[g];
  }
}

// Moves packed codes of one row (strip 1) to where row `row` of a matrix with this strip lies in
// `out`, which starts at row 0.
void place_row(std::span<const std::byte> codes, int32_t row, int32_t strip, std::byte* out);

// 128 codes 0…15 to 64 bytes.
void pack_int4_block(std::span<const uint8_t, kInt4Block> codes, std::byte* out);

}  // namespace exode
