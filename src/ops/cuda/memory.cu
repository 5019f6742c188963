// Bulk memory on CUDA: made-up contents, and the loops that measure what the memory can do.
#include <type_traits>

#include "base/rng.h"
#include "ops/cuda/common.cuh"
#include "ops/require.h"

namespace exode::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 8;
constexpr unsigned kFillBlocks = 4096;

// What place i of the tensor gets.
struct Words {
  uint64_t seed;
  __device__ uint32_t operator()(int64_t i) const {
    return static_cast<uint32_t>(random_bits(seed, static_cast<uint64_t>(i)));
  }
};
struct TailBytes {
  uint64_t seed;
  int64_t word;
  __device__ uint8_t operator()(int64_t i) const {
    return static_cast<uint8_t>(random_bits(seed, static_cast<uint64_t>(word)) >> (8 * i));
  }
};
// Not fused into one rounding, so that all backends give the same bits.
struct Uniform {
  uint64_t seed;
  float low, width;
  __device__ float operator()(int64_t i) const {
    return __fadd_rn(low, __fmul_rn(width, random_unit(seed, static_cast<uint64_t>(i))));
  }
};

template <class T>
__device__ T narrowed(float value) {
  return value;
}
template <>
__device__ __nv_bfloat16 narrowed(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __half narrowed(float value) {
  return __float2half_rn(value);
}

template <class T, class Value>
__global__ void fill(T* out, int64_t count, Value value) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    if constexpr (std::is_same_v<Value, Uniform>) {
      out[i] = narrowed<T>(value(i));
    } else {
      out[i] = value(i);
    }
  }
}

template <class T, class Value>
void launch_fill(Stream& stream, void* out, int64_t count, Value value) {
  if (count == 0) return;
  const unsigned blocks = min(blocks_for(count, kThreads), kFillBlocks);
  fill<<<blocks, kThreads, 0, native(stream)>>>(static_cast<T*>(out), count, value);
  launched();
}

__device__ uint32_t fold(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

// A block for each part; kUnroll loads of a thread are under way at once.
__global__ void read_words(const uint32_t* x, int64_t words, int64_t part, uint32_t* out) {
  const int64_t first = min(blockIdx.x * part, words);
  const int64_t count = min(part, words - first), quads = count / 4;
  const auto* data = reinterpret_cast<const uint4*>(x + first);
  uint32_t sum = 0;
  int64_t i = threadIdx.x;
  for (; i + (kUnroll - 1) * kThreads < quads; i += kUnroll * kThreads) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = __ldcs(data + i + u * kThreads);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum ^= fold(v[u]);
  }
  for (; i < quads; i += kThreads) sum ^= fold(__ldcs(data + i));
  for (int64_t w = quads * 4 + threadIdx.x; w < count; w += kThreads) sum ^= x[first + w];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) sum ^= __shfl_xor_sync(kAll, sum, offset);
  __shared__ uint32_t warps[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < kThreads / kWarp; ++w) sum ^= warps[w];
  out[blockIdx.x] = sum;
}

__global__ void copy_quads(const uint4* x, uint4* out, int64_t quads) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kUnroll + threadIdx.x;
  uint4 v[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + u * kThreads < quads) v[u] = __ldcs(x + first + u * kThreads);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + u * kThreads < quads) __stcs(out + first + u * kThreads, v[u]);
  }
}

__global__ void copy_tail(const std::byte* x, std::byte* out, int64_t first, int64_t bytes) {
  const int64_t i = first + threadIdx.x;
  if (i < bytes) out[i] = x[i];
}

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % sizeof(uint4) == 0; }

}  // namespace

void launch(Stream& stream, const ops::FillRandom& op, Scratch) {
  const int64_t count = op.out.shape.elements();
  const Uniform uniform{.seed = op.seed, .low = op.low, .width = op.high - op.low};
  if (op.out.dtype == DType::kU8) {
    const int64_t words = count / 4;
    launch_fill<uint32_t>(stream, op.out.data, words, Words{op.seed});
    launch_fill<uint8_t>(stream, op.out.data + words * 4, count - words * 4,
                         TailBytes{.seed = op.seed, .word = words});
  } else if (op.out.dtype == DType::kF32) {
    launch_fill<float>(stream, op.out.data, count, uniform);
  } else if (op.out.dtype == DType::kBF16) {
    launch_fill<__nv_bfloat16>(stream, op.out.data, count, uniform);
  } else {
    launch_fill<__half>(stream, op.out.data, count, uniform);
  }
}

void launch(Stream& stream, const ops::ReadWords& op, Scratch) {
  const auto words = static_cast<int64_t>(ops::tensor_bytes(op.x) / sizeof(uint32_t));
  const int64_t part = ops::read_part_words(words, op.out.rows());
  EXODE_CHECK(is_aligned(op.x.data), "read_words: x is not aligned to 16 bytes");
  read_words<<<static_cast<unsigned>(op.out.rows()), kThreads, 0, native(stream)>>>(
      op.x.row<uint32_t>(0), words, part, op.out.row<uint32_t>(0));
  launched();
}

void launch(Stream& stream, const ops::CopyBytes& op, Scratch) {
  const auto bytes = static_cast<int64_t>(ops::tensor_bytes(op.x));
  const auto quads = bytes / static_cast<int64_t>(sizeof(uint4));
  EXODE_CHECK(is_aligned(op.x.data) && is_aligned(op.out.data),
              "copy_bytes: not aligned to 16 bytes");
  if (quads > 0) {
    copy_quads<<<blocks_for(quads, kThreads * kUnroll), kThreads, 0, native(stream)>>>(
        reinterpret_cast<const uint4*>(op.x.data), reinterpret_cast<uint4*>(op.out.data), quads);
    launched();
  }
  const auto tail = quads * static_cast<int64_t>(sizeof(uint4));
  if (tail == bytes) return;
  copy_tail<<<1, sizeof(uint4), 0, native(stream)>>>(op.x.data, op.out.data, tail, bytes);
  launched();
}

}  // namespace exode::cuda
