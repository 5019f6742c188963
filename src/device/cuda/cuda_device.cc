// CUDA device: reports what is there and refuses to run until every op has a CUDA kernel.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/device.h"

namespace exode {

Result<std::unique_ptr<Device>> open_cuda_device(const DeviceOptions& options) {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    return unsupported(
        fmt::format("no usable CUDA device: {}; use --device cpu", cudaGetErrorString(status)));
  }
  return unsupported(fmt::format(
      "{} CUDA device(s) found, but '{}' cannot run models yet: the op table has no CUDA kernels; "
      "use --device cpu",
      count, options.name));
}

}  // namespace exode
