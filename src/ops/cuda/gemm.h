// Matmuls of many rows on tensor cores: f16 products, f32 sums. x is stored once as halves in the
// order of the weight codec; weights are dequantised in registers, never in memory.
//   compute capability 9.0   gemm_wgmma.cu: warpgroup MMAs, x by bulk copies
//   others                   gemm_mma.cu: mma.sync, x by asynchronous copies
// Every sum runs over K in one order that depends on K only, so a row has the same bits whatever
// the other rows are and however many, as long as this kernel serves it.
#pragma once

#include "ops/cuda/cuda.h"

namespace exode::cuda {

// From this many rows on a matmul is a gemm's work; fewer are a stream's or the exact kernel's.
inline constexpr int32_t kGemmRowsFrom = 33;

// Whether there is a codec for the weights.
bool gemm_applies(const WeightView& w);
size_t gemm_scratch_bytes(const ConstTensorView& x);
void gemm_launch(Stream&, const ops::MatMul&, Scratch);
void gemm_launch(Stream&, const ops::MatMulSwiGlu&, Scratch);

}  // namespace exode::cuda
