// Dense KV on CUDA: one block per (row, KV head); each warp takes every fourth block of tokens with
// an online softmax, and the partial results are joined in warp order.
#include "kv/formats/dense/layout.h"
#include "ops/cuda/common.cuh"

namespace exode::kv_dense {
namespace {

using cuda::ConstRows;
using cuda::kAll;
using cuda::kWarp;
using cuda::Rows;
using cuda::warp_sum;

constexpr int kWarps = 4;
constexpr int kDimLanes = 16;  // values of a head per lane: head_dim ≤ 512

__device__ float load(const float* p) { return *p; }
__device__ float load(const __nv_bfloat16* p) { return __bfloat162float(*p); }
__device__ float load(const __half* p) { return __half2float(*p); }
__device__ void save(float* p, float v) { *p = v; }
__device__ void save(__nv_bfloat16* p, float v) { *p = __float2bfloat16_rn(v); }
__device__ void save(__half* p, float v) { *p = __float2half_rn(v); }

struct Cache {
  std::byte* base;
  int64_t block_stride;
  const int32_t* table;
  int64_t table_stride;
  int heads, dim;
  template <class T>
  __device__ T* block(int sequence, int token) const {
    const int32_t b = table[sequence * table_stride + token / kKvBlock];
    return reinterpret_cast<T*>(base + b * block_stride);
  }
  __device__ int64_t key(int head, int token) const {
    return (int64_t{head} * kKvBlock + token % kKvBlock) * dim;
  }
  __device__ int64_t value(int head, int token) const {
    return int64_t{heads} * kKvBlock * dim + key(head, token);
  }
};

Cache cache_of(const KvView& v) {
  return {v.base,  v.block_stride, v.block_table.row<int32_t>(0), v.block_table.row_stride,
          v.heads, v.head_dim};
}

template <class T>
__global__ void append(Cache cache, ConstRows k, ConstRows v, const int32_t* positions,
                       const int32_t* seq_of_row) {
  const int row = blockIdx.x, sequence = seq_of_row[row], token = positions[row];
  if (sequence < 0) return;
  T* block = cache.block<T>(sequence, token);
  for (int i = threadIdx.x; i < cache.heads * cache.dim; i += blockDim.x) {
    const int head = i / cache.dim, c = i % cache.dim;
    save(block + cache.key(head, token) + c, k.row(row)[i]);
    save(block + cache.value(head, token) + c, v.row(row)[i]);
  }
}

struct AttendArgs {
  Cache cache;
  ConstRows q;
  Rows out;
  const int32_t *positions, *seq_of_row;
  int q_heads, window;
  float scale, soft_cap;
};

// Grid: (query heads, rows). Lane l holds values l, l + 32, … of the head.
template <class T>
__global__ void attend(AttendArgs p) {
  __shared__ float shared_out[kWarps][kDimLanes * kWarp];
  __shared__ float shared_peak[kWarps], shared_total[kWarps];
  const int head = blockIdx.x, row = blockIdx.y, lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp, sequence = p.seq_of_row[row];
  if (sequence < 0) return;
  const int dim = p.cache.dim, lanes = dim / kWarp;
  const int kv_head = head / (p.q_heads / p.cache.heads);
  const int last = p.positions[row];
  const int first = p.window > 0 ? max(0, last - p.window + 1) : 0;
  float q[kDimLanes], out[kDimLanes];
#pragma unroll
  for (int j = 0; j < kDimLanes; ++j) {
    q[j] = j < lanes ? p.q.row(row)[int64_t{head} * dim + j * kWarp + lane] * p.scale : 0.0f;
    out[j] = 0;
  }
  float peak = -INFINITY, total = 0;
  for (int token = first + warp; token <= last; token += kWarps) {
    const T* block = p.cache.block<T>(sequence, token);
    const T* k = block + p.cache.key(kv_head, token) + lane;
    const T* v = block + p.cache.value(kv_head, token) + lane;
    float score = 0;
#pragma unroll
    for (int j = 0; j < kDimLanes; ++j) {
      if (j < lanes) score += q[j] * load(k + j * kWarp);
    }
    score = warp_sum(score);
    if (p.soft_cap > 0) score = p.soft_cap * tanhf(score / p.soft_cap);
    const float next_peak = fmaxf(peak, score);
    const float correction = expf(peak - next_peak), weight = expf(score - next_peak);
    peak = next_peak;
    total = total * correction + weight;
#pragma unroll
    for (int j = 0; j < kDimLanes; ++j) {
      if (j < lanes) out[j] = out[j] * correction + weight * load(v + j * kWarp);
    }
  }
#pragma unroll
  for (int j = 0; j < kDimLanes; ++j) {
    if (j < lanes) shared_out[warp][j * kWarp + lane] = out[j];
  }
  if (lane == 0) {
    shared_peak[warp] = peak;
    shared_total[warp] = total;
  }
  __syncthreads();
  float all_peak = shared_peak[0];
  for (int w = 1; w < kWarps; ++w) all_peak = fmaxf(all_peak, shared_peak[w]);
  float all_total = 0;
  for (int w = 0; w < kWarps; ++w) all_total += shared_total[w] * expf(shared_peak[w] - all_peak);
  for (int i = threadIdx.x; i < dim; i += blockDim.x) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += shared_out[w][i] * expf(shared_peak[w] - all_peak);
    p.out.row(row)[int64_t{head} * dim + i] = sum / all_total;
  }
}

template <class T>
void launch_append(Stream& stream, const kv::KvAppend& op) {
  append<T><<<static_cast<unsigned>(op.k.rows()), 256, 0, cuda::native(stream)>>>(
      cache_of(op.cache), cuda::rows_of(op.k), cuda::rows_of(op.v), cuda::ints(op.positions),
      cuda::ints(op.seq_of_row));
  cuda::launched();
}

template <class T>
void launch_attend(Stream& stream, const kv::Attend& op) {
  const int dim = op.cache.head_dim, heads = op.q.cols() / dim;
  EXODE_CHECK(dim % kWarp == 0 && dim <= kDimLanes * kWarp,
              "attention on cuda needs head_dim to be a multiple of 32 and at most 512");
  const dim3 grid(static_cast<unsigned>(heads), static_cast<unsigned>(op.q.rows()));
  attend<T><<<grid, kWarps * kWarp, 0, cuda::native(stream)>>>(
      {cache_of(op.cache), cuda::rows_of(op.q), cuda::rows_of(op.out), cuda::ints(op.positions),
       cuda::ints(op.seq_of_row), heads, op.window, op.scale, op.soft_cap});
  cuda::launched();
}

template <DType kType>
struct ElementOf;
template <>
struct ElementOf<DType::kF32> {
  using Type = float;
};
template <>
struct ElementOf<DType::kBF16> {
  using Type = __nv_bfloat16;
};
template <>
struct ElementOf<DType::kF16> {
  using Type = __half;
};

template <DType kType>
void add(KvFormat& f) {
  using T = typename ElementOf<kType>::Type;
  const auto cuda = static_cast<size_t>(Backend::kCuda);
  f.append[cuda].launch = [](Stream& s, const kv::KvAppend& op, std::span<std::byte>) {
    launch_append<T>(s, op);
  };
  f.attend[cuda].launch = [](Stream& s, const kv::Attend& op, std::span<std::byte>) {
    launch_attend<T>(s, op);
  };
}

}  // namespace

void add_cuda_kernels(KvFormat& format, DType dtype) {
  if (dtype == DType::kF32) return add<DType::kF32>(format);
  if (dtype == DType::kBF16) return add<DType::kBF16>(format);
  add<DType::kF16>(format);
}

}  // namespace exode::kv_dense
