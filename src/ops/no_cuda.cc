// Takes the place of ops/cuda in builds without CUDA: no device can be opened there, so no kernel
// is ever looked up.
#include "ops/table.h"

namespace exode {

OpTable cuda_ops(const DeviceCaps& caps, Numerics) {
  return {.backend = Backend::kCuda, .caps = caps, .kernels = {}};
}

}  // namespace exode
