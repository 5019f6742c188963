// Matrices on their way into device memory, in units of kPackRows rows.
#pragma once

#include <algorithm>
#include <span>

#include "weights/pack.h"
#include "weights/staging.h"

namespace exode {

// Dense memory of the loader's own arena.
inline std::span<std::byte> memory_of(const ConstTensorView& t) {
  return {const_cast<std::byte*>(t.data),
          static_cast<size_t>(t.shape.elements()) * dtype_bytes(t.dtype)};
}

// Calls body(i, rows) for unit i of `units` of the target, whose rows are those of a module from
// `base` on.
template <class Body>
void for_row_units(const WeightView& target, int32_t base, const Units& units, const Body& body) {
  for (int32_t i = 0; i < units.count; ++i) {
    const int32_t row = (units.first + i) * kPackRows;
    body(static_cast<size_t>(i), PackedRows{.first = base + row,
                                            .count = std::min(kPackRows, target.rows - row),
                                            .strip = target.strip});
  }
}

// `to`, the scales or zeros of the target, from `values` [rows of the module, groups].
template <class T>
Status write_groups(Staging& staging, const WeightView& target, const ConstTensorView& to,
                    std::span<const T> values, int32_t base) {
  const auto groups = static_cast<size_t>(to.cols());
  const size_t unit_bytes = kPackRows * groups * sizeof(T);
  return staging.write(memory_of(to), unit_bytes, [&](const Units& units, std::byte* out) {
    for_row_units(target, base, units, [&](size_t i, const PackedRows& rows) {
      pack_groups(values, groups, rows, reinterpret_cast<T*>(out + i * unit_bytes));
    });
  });
}

}  // namespace exode
