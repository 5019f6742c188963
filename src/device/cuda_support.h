// Whether a CUDA device can be used, and if not, one line that says why and what to change. Plain
// values in, so that every answer is tested on machines without a GPU.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace exode {

// What the CUDA runtime said when it was first asked for something.
struct CudaFailure {
  int status = 0;  // cudaError_t
  std::string text;
  int driver_version = 0;   // as CUDA counts: 12040 is 12.4; 0 = no driver
  int runtime_version = 0;  // what this binary was linked with
};
Error explain(const CudaFailure& failure);

struct CudaGpu {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  size_t free_bytes = 0, total_bytes = 0;
};

// `archs` is what the kernels were compiled for: "80,86,90a"; GPUs newer than the oldest of them
// run them too. `reserve_bytes` are left to the driver.
Status require_usable(const CudaGpu& gpu, std::string_view archs, size_t reserve_bytes);

}  // namespace exode
