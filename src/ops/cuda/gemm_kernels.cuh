// The kernel behind gemm.h, for gemm.cu alone: it runs on x as packed for its codec.
#pragma once

#include "ops/cuda/gemm_tile.cuh"

namespace exode::cuda::gemm {

template <class Codec>
void run_mma(cudaStream_t stream, const Args& a, bool swiglu);

}  // namespace exode::cuda::gemm
