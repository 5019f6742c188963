// Tensor-core vocabulary of the attention kernels: mma.m16n8k16 of two 16-bit types, ldmatrix,
// cp.async, and the swizzle that keeps both free of bank conflicts. A lane is (g, t) =
// (lane / 4, lane % 4); a segment is 16 bytes, eight values.
#pragma once

#include "ops/cuda/common.cuh"

namespace exode::kv_cuda {

using cuda::kAll;
using cuda::kWarp;

constexpr int kSegment = 8;  // values

// Byte offset of a segment in a tile of rows; eight rows of one column fall into eight banks
// groups. Rows are multiples of 128 bytes.
__device__ inline int swizzled(int row, int segment, int row_bytes) {
  return row * row_bytes + ((segment ^ (row & 7)) << 4);
}

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Copies 16 bytes without passing registers; zeros instead of them when `live` is false.
__device__ inline void copy_async(uint32_t to, const void* from, bool live) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(live ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// As above, with a count known at run time; 1 to 4.
__device__ inline void wait_copies(int pending) {
  if (pending == 4) return wait_copies<4>();
  if (pending == 3) return wait_copies<3>();
  if (pending == 2) return wait_copies<2>();
  wait_copies<1>();
}

__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                           __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                           __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two values in one register, `low` first in memory.
__device__ inline uint32_t pack(float low, float high, __half) {
  const __half2 v = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline uint32_t pack(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}

// 2^x; exactly 1 for 0 and 0 for −∞.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace exode::kv_cuda
