// CUDA calls that cannot fail unless we have a bug or the device is lost: abort with the place.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/check.h"

namespace exode {

inline void cuda_check_at(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  check_failed(call, file, line,
               std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status));
}

}  // namespace exode

#define EXODE_CUDA_CHECK(call) ::exode::cuda_check_at((call), #call, __FILE__, __LINE__)
