// The contract of every op. It never allocates, never waits, never reads device memory on the
// host; launch geometry depends on argument shapes only; rows with seq_of_row = -1 (padding) are
// skipped; the result is deterministic, and for up to 8 rows the order of summation does not
// depend on the row count, so that verifying a draft and decoding one token agree bit for bit.
// On the CPU backend this holds for any row count and any split of a prompt into chunks, except
// where a header says otherwise.
//
// An op is a struct of arguments plus validate(), cost() and name(); each backend has one kernel
// for it in its OpTable (ops/table.h). Run ops through Exec (ops/exec.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device/device.h"
#include "tensor/tensor.h"
#include "tensor/weight.h"

namespace exode {

// What an op must move and do, not what an implementation happens to do.
struct Cost {
  uint64_t bytes = 0, flops = 0;
};

template <class Op>
struct Kernel {
  void (*launch)(Stream&, const Op&, std::span<std::byte> scratch) = nullptr;
  size_t (*scratch_bytes)(const DeviceCaps&, const Op&) = nullptr;  // null = none
};

}  // namespace exode
