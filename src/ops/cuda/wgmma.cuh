// The warpgroup MMA of compute capability 9.0 and the barriers that feed it.
#pragma once

#include "ops/cuda/matmul_stream.cuh"

namespace exode::cuda::gemm {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ inline void barrier_init(uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
__device__ inline void barrier_expect(uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ inline void barrier_wait(uint64_t* barrier, int parity) {
  uint32_t done;
  do {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
}
__device__ inline void copy_bulk(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Of an operand whose lines of 128 bytes lie in groups of eight, pieces exchanged.
__device__ inline uint64_t descriptor(uint32_t address) {
  constexpr uint64_t kExchange128 = uint64_t{1} << 62, kGroupStride = uint64_t{1024 >> 4} << 32;
  return kExchange128 | kGroupStride | uint64_t{1} << 16 | (address & 0x3ffffu) >> 4;
}

// Keeps the making of an operand before the fence that follows: the assembler would serialise MMAs
// between which it finds it.
__device__ inline void pin(Operand& a) {
  asm volatile("" : "+r"(a.a0), "+r"(a.a1), "+r"(a.a2), "+r"(a.a3)::"memory");
}
template <int STRIPS, int TILES>
__device__ void pin(float (&c)[STRIPS][TILES][4]) {
#pragma unroll
  for (int i = 0; i < STRIPS * TILES * 4; ++i) asm volatile("" : "+f"((&c[0][0][0])[i])::"memory");
}
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// c += a bᵀ for 64 weight rows, 16 of each warp, and all tokens of the tile.
#define EXODE_C(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
__device__ inline void wgmma(float (&c)[8][4], const Operand& a, uint64_t b) {
  asm volatile(
      "{.reg .pred add; setp.eq.b32 add, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1, 0;}"
      : EXODE_C(0), EXODE_C(1), EXODE_C(2), EXODE_C(3), EXODE_C(4), EXODE_C(5), EXODE_C(6),
        EXODE_C(7)
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "l"(b));
}
__device__ inline void wgmma(float (&c)[16][4], const Operand& a, uint64_t b) {
  asm volatile(
      "{.reg .pred add; setp.eq.b32 add, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, add, 1, 1, 0;}"
      : EXODE_C(0), EXODE_C(1), EXODE_C(2), EXODE_C(3), EXODE_C(4), EXODE_C(5), EXODE_C(6),
        EXODE_C(7), EXODE_C(8), EXODE_C(9), EXODE_C(10), EXODE_C(11), EXODE_C(12), EXODE_C(13),
        EXODE_C(14), EXODE_C(15)
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "l"(b));
}
__device__ inline void wgmma(float (&c)[32][4], const Operand& a, uint64_t b) {
  asm volatile(
      "{.reg .pred add; setp.eq.b32 add, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
      "%111, "
      " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127}, "
      "{%128, %129, %130, %131}, %132, add, 1, 1, 0;}"
      : EXODE_C(0), EXODE_C(1), EXODE_C(2), EXODE_C(3), EXODE_C(4), EXODE_C(5), EXODE_C(6),
        EXODE_C(7), EXODE_C(8), EXODE_C(9), EXODE_C(10), EXODE_C(11), EXODE_C(12), EXODE_C(13),
        EXODE_C(14), EXODE_C(15), EXODE_C(16), EXODE_C(17), EXODE_C(18), EXODE_C(19), EXODE_C(20),
        EXODE_C(21), EXODE_C(22), EXODE_C(23), EXODE_C(24), EXODE_C(25), EXODE_C(26), EXODE_C(27),
        EXODE_C(28), EXODE_C(29), EXODE_C(30), EXODE_C(31)
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "l"(b));
}
#undef EXODE_C

}  // namespace exode::cuda::gemm
