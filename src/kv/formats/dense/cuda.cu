// Dense KV on CUDA: append, alone and together with the norm and rotation of q and k, and the exact
// attention kernel: one block per (row, KV head); each warp takes every fourth block of tokens with
// an online softmax, and the partial results are joined in warp order.
#include "kv/formats/dense/cuda_attend.h"
#include "kv/formats/dense/layout.h"
#include "ops/cuda/launch.cuh"

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

struct RotateArgs {
  Cache cache;
  Rows q;
  ConstRows k, v;
  const float *q_weight, *k_weight, *inv_freq;  // weights may be null
  const int32_t *positions, *seq_of_row;
  int q_heads, half;
  float eps, weight_bias, rope_scale;
};

// The norm and rotation of one head by one warp; save_at(i, value) takes each value once.
template <class Save>
__device__ void norm_rotate(const RotateArgs& p, const float* x, const float* weight, int position,
                            const Save& save_at) {
  const int lane = threadIdx.x % kWarp, dim = p.cache.dim;
  float norm = 1;
  if (weight != nullptr) {
    float sum = 0;
    for (int i = lane; i < dim; i += kWarp) sum += x[i] * x[i];
    norm = rsqrtf(warp_sum(sum) / static_cast<float>(dim) + p.eps);
  }
  const auto normed = [&](int i) {
    return weight == nullptr ? x[i] : x[i] * norm * (weight[i] + p.weight_bias);
  };
  for (int j = lane; j < p.half; j += kWarp) {
    float sine, cosine;
    sincosf(static_cast<float>(position) * p.inv_freq[j], &sine, &cosine);
    sine *= p.rope_scale;
    cosine *= p.rope_scale;
    const float a = normed(j), b = normed(j + p.half);
    save_at(j, a * cosine - b * sine);
    save_at(j + p.half, b * cosine + a * sine);
  }
  for (int i = 2 * p.half + lane; i < dim; i += kWarp) save_at(i, normed(i));
}

// Grid: (heads of q, k and v by kWarps, rows); a warp per head.
template <class T>
__global__ void rotate_append(RotateArgs p) {
  cuda::start_next();
  cuda::wait_for_earlier();
  const int row = blockIdx.y, lane = threadIdx.x % kWarp, heads = p.cache.heads;
  int head = blockIdx.x * kWarps + threadIdx.x / kWarp;
  const int sequence = p.seq_of_row[row], position = p.positions[row], dim = p.cache.dim;
  if (sequence < 0 || position < 0 || head >= p.q_heads + 2 * heads) return;
  if (head < p.q_heads) {
    float* q = p.q.row(row) + int64_t{head} * dim;
    return norm_rotate(p, q, p.q_weight, position, [&](int i, float value) { q[i] = value; });
  }
  head -= p.q_heads;
  T* block = p.cache.block<T>(sequence, position);
  if (head < heads) {
    T* to = block + p.cache.key(head, position);
    return norm_rotate(p, p.k.row(row) + int64_t{head} * dim, p.k_weight, position,
                       [&](int i, float value) { save(to + i, value); });
  }
  head -= heads;
  T* to = block + p.cache.value(head, position);
  const float* from = p.v.row(row) + int64_t{head} * dim;
  for (int i = lane; i < dim; i += kWarp) save(to + i, from[i]);
}

struct AttendArgs {
  Cache cache;
  ConstRows q, gate;  // gate.data may be null
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
    const int64_t column = int64_t{head} * dim + i;
    const float factor = p.gate.data == nullptr ? 1.0f : cuda::sigmoid(p.gate.row(row)[column]);
    p.out.row(row)[column] = sum / all_total * factor;
  }
}

template <class T>
void launch_append(Stream& stream, const kv::KvAppend& op) {
  append<T><<<static_cast<unsigned>(op.k.rows()), 256, 0, cuda::native(stream)>>>(
      cache_of(op.cache), cuda::rows_of(op.k), cuda::rows_of(op.v), cuda::ints(op.positions),
      cuda::ints(op.seq_of_row));
  cuda::launched();
}

const float* floats_or_null(const ConstTensorView& t) {
  return t.empty() ? nullptr : t.row<float>(0);
}

template <class T>
void launch_rotate_append(Stream& stream, const kv::RotateAppend& op) {
  const ops::QkNormRope& r = op.rotate;
  const RotateArgs args{.cache = cache_of(op.cache),
                        .q = cuda::rows_of(r.q),
                        .k = cuda::rows_of(ConstTensorView(r.k)),
                        .v = cuda::rows_of(op.v),
                        .q_weight = floats_or_null(r.q_weight),
                        .k_weight = floats_or_null(r.k_weight),
                        .inv_freq = floats_or_null(r.inv_freq),
                        .positions = cuda::ints(r.positions),
                        .seq_of_row = cuda::ints(op.seq_of_row),
                        .q_heads = r.q.cols() / r.head_dim,
                        .half = r.inv_freq.rows(),
                        .eps = r.eps,
                        .weight_bias = r.weight_bias,
                        .rope_scale = r.rope_scale};
  const dim3 grid(cuda::blocks_for(args.q_heads + 2 * op.cache.heads, kWarps),
                  static_cast<unsigned>(r.q.rows()));
  cuda::launch_chained(cuda::native(stream), rotate_append<T>, grid, kWarps * kWarp, 0, args);
}

template <class T>
void launch_attend(Stream& stream, const kv::Attend& op) {
  const int dim = op.cache.head_dim, heads = op.q.cols() / dim;
  EXODE_CHECK(dim % kWarp == 0 && dim <= kDimLanes * kWarp,
              "attention on cuda needs head_dim to be a multiple of 32 and at most 512");
  const dim3 grid(static_cast<unsigned>(heads), static_cast<unsigned>(op.q.rows()));
  attend<T><<<grid, kWarps * kWarp, 0, cuda::native(stream)>>>(
      {cache_of(op.cache), cuda::rows_of(op.q),
       op.gate.empty() ? ConstRows{} : cuda::rows_of(op.gate), cuda::rows_of(op.out),
       cuda::ints(op.positions), cuda::ints(op.seq_of_row), heads, op.window, op.scale,
       op.soft_cap});
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
  f.rotate_append[cuda].launch = [](Stream& s, const kv::RotateAppend& op, std::span<std::byte>) {
    launch_rotate_append<T>(s, op);
  };
  f.attend[cuda].launch = [](Stream& s, const kv::Attend& op, std::span<std::byte> scratch) {
    if (tensor_cores_apply(op, kType)) return tensor_core_attend(s, op, kType, scratch);
    launch_attend<T>(s, op);
  };
  f.attend[cuda].scratch_bytes = [](const DeviceCaps&, const kv::Attend& op) {
    return tensor_cores_apply(op, kType) ? tensor_core_scratch_bytes(op) : size_t{0};
  };
}

}  // namespace

void exact_attend(Stream& stream, const kv::Attend& op, DType dtype) {
  if (dtype == DType::kF32) return launch_attend<float>(stream, op);
  if (dtype == DType::kBF16) return launch_attend<__nv_bfloat16>(stream, op);
  launch_attend<__half>(stream, op);
}

void add_cuda_kernels(KvFormat& format, DType dtype) {
  if (dtype == DType::kF32) return add<DType::kF32>(format);
  if (dtype == DType::kBF16) return add<DType::kBF16>(format);
  add<DType::kF16>(format);
}

}  // namespace exode::kv_dense
