// The tensor-core path of int4 matmul (matmul_int4.cu): f16 products, f32 sums.
#pragma once

#include "ops/cuda/cuda.h"

namespace exode::cuda {

bool int4_tensor_cores_apply(const WeightView& w);
size_t int4_scratch_bytes(const ops::MatMul& op);
void int4_launch(Stream& stream, const ops::MatMul& op, Scratch scratch);

}  // namespace exode::cuda
