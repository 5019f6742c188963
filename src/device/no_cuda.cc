// Takes the place of device/cuda in builds without CUDA, so that no caller needs an #ifdef.
#include "device/device.h"

namespace exode {

Result<std::unique_ptr<Device>> open_cuda_device(const DeviceOptions&) {
  return unsupported(
      "this exode was built without CUDA; build with './x build cuda-dev' or use --device cpu");
}

}  // namespace exode
