// Attention over 16-bit dense KV on the tensor cores of a CUDA device, and the exact kernel that
// takes every other case and judges this one.
#pragma once

#include "kv/kv.h"

namespace exode::kv_dense {

bool tensor_cores_apply(const kv::Attend& op, DType dtype);
size_t tensor_core_scratch_bytes(const kv::Attend& op);
void tensor_core_attend(Stream& stream, const kv::Attend& op, DType dtype,
                        std::span<std::byte> scratch);

void exact_attend(Stream& stream, const kv::Attend& op, DType dtype);

}  // namespace exode::kv_dense
