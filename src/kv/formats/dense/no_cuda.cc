// Takes the place of cuda.cu in builds without CUDA: the formats have no CUDA kernels there.
#include "kv/formats/dense/layout.h"

namespace exode::kv_dense {

void add_cuda_kernels(KvFormat&, DType) {}

}  // namespace exode::kv_dense
