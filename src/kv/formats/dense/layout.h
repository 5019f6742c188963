// Dense KV formats store K and V as they are, in f32, bf16 or f16. One block of one layer:
//
//   K  [heads][64 tokens][head_dim]      token t of head h at (h · 64 + t) · head_dim
//   V  [heads][64 tokens][head_dim]      after all of K
//
// so that one head's keys of a block are one contiguous run.
#pragma once

#include "kv/kv.h"

namespace exode::kv_dense {

inline int64_t k_offset(const KvView& cache, int32_t head, int32_t token) {
  return (int64_t{head} * kKvBlock + token) * cache.head_dim;
}

inline int64_t v_offset(const KvView& cache, int32_t head, int32_t token) {
  return int64_t{cache.heads} * kKvBlock * cache.head_dim + k_offset(cache, head, token);
}

template <class T>
T* block_data(const KvView& cache, int32_t sequence, int32_t block_index) {
  const int32_t block = cache.block_table.row<int32_t>(sequence)[block_index];
  return reinterpret_cast<T*>(cache.base + block * cache.block_stride);
}

// Kernels, by element type of the cache.
void ref_append(Stream&, const kv::KvAppend&, DType);
void ref_attend(Stream&, const kv::Attend&, DType);
void cpu_append(Stream&, const kv::KvAppend&, DType);
void cpu_attend(Stream&, const kv::Attend&, DType);
void add_cuda_kernels(KvFormat& format, DType dtype);  // nothing in builds without CUDA

}  // namespace exode::kv_dense
