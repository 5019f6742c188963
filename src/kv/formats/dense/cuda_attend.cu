// 16-bit dense KV on tensor cores: tiles are copied as they are.
#include "kv/cuda/launch_attend.cuh"
#include "kv/formats/dense/cuda_attend.h"

namespace exode::kv_dense {
namespace {

template <class T>
struct Dense {
  using Operand = T;

  template <int kDim, int kThreads>
  __device__ static void load_tile(const kv_cuda::Cache& cache, kv_cuda::Part part, int block,
                                   int head, int first_dim, int tokens, uint32_t to) {
    constexpr int kSegments = kDim / kv_cuda::kSegment;  // of a row
    const int heads_before = part == kv_cuda::Part::kKey ? head : cache.heads + head;
    const auto* from = reinterpret_cast<const T*>(cache.base + block * cache.block_stride) +
                       int64_t{heads_before} * kKvBlock * cache.dim + first_dim;
#pragma unroll
    for (int i = 0; i < kKvBlock * kSegments / kThreads; ++i) {
      const int index = i * kThreads + static_cast<int>(threadIdx.x);
      const int token = index / kSegments, segment = index % kSegments;
      kv_cuda::copy_async(to + kv_cuda::swizzled(token, segment, kDim * 2),
                          from + token * cache.dim + segment * kv_cuda::kSegment, token < tokens);
    }
  }
};

// Whole segments of q and out are read and written at once.
bool aligned(const ConstTensorView& t) {
  return t.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

}  // namespace

bool tensor_cores_apply(const kv::Attend& op, DType dtype) {
  return dtype != DType::kF32 && kv_cuda::has_tensor_core_attention(op.cache.head_dim) &&
         aligned(op.q) && aligned(op.out);
}

size_t tensor_core_scratch_bytes(const kv::Attend& op) { return kv_cuda::attend_scratch_bytes(op); }

void tensor_core_attend(Stream& stream, const kv::Attend& op, DType dtype,
                        std::span<std::byte> scratch) {
  if (dtype == DType::kBF16) {
    return kv_cuda::launch_attend<Dense<__nv_bfloat16>>(stream, op, scratch);
  }
  kv_cuda::launch_attend<Dense<__half>>(stream, op, scratch);
}

}  // namespace exode::kv_dense
