// Marks inline functions that kernels and host code share.
#pragma once

#if defined(__CUDACC__)
#define EXODE_HOST_DEVICE __host__ __device__
#else
#define EXODE_HOST_DEVICE
#endif
