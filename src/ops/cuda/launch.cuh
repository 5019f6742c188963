// Launching kernels that overlap their neighbours (programmatic dependent launch, compute
// capability 9.0 and newer; elsewhere the same calls are plain launches).
//
//   __global__ void kernel(...) {
//     start_next();        // the next kernel may become resident now
//     ...                  // whatever no earlier kernel writes: weight loads, index arithmetic
//     wait_for_earlier();  // every kernel launched before has finished and its writes are visible
//     ...
//   }
//   launch_chained(stream, kernel, grid, threads, shared_bytes, arguments...);
//
// A kernel launched this way must call wait_for_earlier() in every thread that reads what an
// earlier kernel writes, or writes what one reads or writes; and at least one thread of each block
// must call it before the block ends, or the kernels after this one could overtake the ones before.
// Kernels launched with <<<>>> need neither call: they start when everything before has ended.
#pragma once

#include <utility>

#include "ops/cuda/common.cuh"

namespace exode::cuda {

__device__ inline void start_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The driver answers from a table: this costs far less than a launch.
inline bool overlaps_launches() {
  int device = 0, major = 0;
  EXODE_CUDA_CHECK(cudaGetDevice(&device));
  EXODE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 9;
}

template <class... Parameters, class... Arguments>
void launch_chained(cudaStream_t stream, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
                    size_t shared_bytes, Arguments&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlaps_launches() ? 1 : 0;
  EXODE_CUDA_CHECK(cudaLaunchKernelEx(
      &config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...));
}

}  // namespace exode::cuda
