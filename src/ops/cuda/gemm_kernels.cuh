// The kernels behind gemm.h, for gemm.cu alone: each runs on x as packed for its codec.
#pragma once

#include "ops/cuda/gemm_tile.cuh"

namespace exode::cuda::gemm {

template <class Codec>
void run_mma(cudaStream_t stream, const Args& a, bool swiglu);
template <class Codec>
void run_wgmma(cudaStream_t stream, const Args& a, bool swiglu);

}  // namespace exode::cuda::gemm
