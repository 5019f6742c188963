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

// Codes of rows [first, first + out.size() / row bytes) of a kInt4Group weight, packed.
void pack_int4_rows(const HostWeight& weight, int32_t first, ThreadPool* pool,
                    std::span<std::byte> out);

// One row: codes 0…15, one per byte, to blocks of 64 bytes. `out` has packed_row_bytes.
void pack_int4_row(std::span<const uint8_t> codes, std::byte* out);

}  // namespace exode
