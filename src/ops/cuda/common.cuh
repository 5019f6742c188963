// The small vocabulary of the CUDA kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "device/cuda/cuda_check.h"
#include "ops/cuda/cuda.h"

namespace exode::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAll = 0xffffffffu;

inline cudaStream_t native(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

inline unsigned blocks_for(int64_t items, int per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

// After every launch: a bad configuration is our bug.
inline void launched() { EXODE_CUDA_CHECK(cudaGetLastError()); }

// Butterfly: every lane gets the sum, in an order that does not depend on anything.
__device__ inline float warp_sum(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAll, x, offset);
  return x;
}

// Sum over the block; `shared` holds a float per warp. Every thread gets the result.
__device__ inline float block_sum(float x, float* shared) {
  x = warp_sum(x);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int warps = blockDim.x / kWarp;
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }

// Dense matrix of f32 with a row stride.
struct Rows {
  float* data;
  int64_t stride;
  __device__ float* row(int64_t r) const { return data + r * stride; }
};
struct ConstRows {
  const float* data;
  int64_t stride;
  __device__ const float* row(int64_t r) const { return data + r * stride; }
};

inline void require_f32(const ConstTensorView& t) {
  EXODE_CHECK(t.dtype == DType::kF32, "cuda kernels take f32 activations");
}
inline Rows rows_of(const TensorView& t) {
  require_f32(t);
  return {t.row<float>(0), t.row_stride};
}
inline ConstRows rows_of(const ConstTensorView& t) {
  require_f32(t);
  return {t.row<float>(0), t.row_stride};
}
inline const int32_t* ints(const ConstTensorView& t) { return t.row<int32_t>(0); }

}  // namespace exode::cuda
