// Launches the attention kernels of a format: grids from shapes only, which rows go where is found
// out on the device.
#pragma once

#include "kv/cuda/attend_few.cuh"
#include "kv/cuda/attend_many.cuh"

namespace exode::kv_cuda {

constexpr size_t kPartialBytes = size_t{64} << 20;  // more sequences take several launches
constexpr int kRingMin = 3, kRingMax = 6;           // wait_copies
constexpr int kGridMax = 65535;

inline bool has_tensor_core_attention(int head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

struct FewPlan {
  int runs, rows_max, splits, runs_per_launch;
  size_t partial_floats, bytes;  // of one launch; all of it
};

inline FewPlan few_plan(const kv::Attend& op) {
  FewPlan plan;
  const int rows = op.q.rows(), heads = op.q.cols() / op.cache.head_dim;
  const bool alone = op.seqs.seqs() == 0;
  plan.runs = alone ? rows : std::min(op.seqs.seqs(), kGridMax / kv::kFewRows);
  plan.rows_max = alone ? 1 : std::min(rows, kv::kFewRows);
  plan.splits = split_of(op.cache.block_table.cols() * kKvBlock - 1) + 1;
  const size_t sums = static_cast<size_t>(plan.rows_max) * static_cast<size_t>(heads) *
                      static_cast<size_t>(plan.splits);
  const size_t floats = static_cast<size_t>(op.cache.head_dim) + 2;
  plan.runs_per_launch = static_cast<int>(std::clamp<size_t>(
      kPartialBytes / (sums * floats * sizeof(float)), 1,
      std::min<size_t>(static_cast<size_t>(plan.runs), kGridMax / kv::kFewRows)));
  const size_t all = sums * static_cast<size_t>(plan.runs_per_launch);
  plan.partial_floats = all * static_cast<size_t>(op.cache.head_dim);
  plan.bytes = all * floats * sizeof(float);
  return plan;
}

template <class... Parameters>
void allow_shared(void (*kernel)(Parameters...), size_t bytes) {
  EXODE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(bytes)));
}

// Shared memory for a CTA so that two fit where 227 KB are to be had, one where 99 KB are.
inline int ring_size(int limit, int fixed_bytes, int tile_bytes) {
  const int budget = limit > 200 * 1024 ? limit / 2 - 1024 : limit;
  return std::clamp((budget - fixed_bytes) / tile_bytes, kRingMin, kRingMax);
}

inline int shared_limit() {
  int device = 0, bytes = 0;
  EXODE_CUDA_CHECK(cudaGetDevice(&device));
  EXODE_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

template <class Format, int kDim, int kTiles>
void launch_few(cudaStream_t stream, const kv::Attend& op, std::span<std::byte> scratch) {
  using S = FewShape<kDim, kTiles>;
  const FewPlan plan = few_plan(op);
  FewArgs a{.p = args_of(op),
            .first_run = 0,
            .rows_max = plan.rows_max,
            .splits = plan.splits,
            .partial = reinterpret_cast<float*>(scratch.data()),
            .peak_total = reinterpret_cast<float2*>(reinterpret_cast<float*>(scratch.data()) +
                                                    plan.partial_floats),
            .ring = ring_size(shared_limit(), S::kFixedBytes, S::kTileBytes)};
  const auto bytes = static_cast<size_t>(a.ring * S::kTileBytes + S::kFixedBytes);
  const size_t combine_bytes =
      (static_cast<size_t>((plan.splits + 3) / 4) + kCombineThreads) * sizeof(float4);
  allow_shared(attend_few<Format, kDim, kTiles>, bytes);
  const int parts =
      (plan.rows_max * (a.p.q_heads / a.p.cache.heads) + S::kQueries - 1) / S::kQueries;
  for (; a.first_run < plan.runs; a.first_run += plan.runs_per_launch) {
    const int runs = std::min(plan.runs_per_launch, plan.runs - a.first_run);
    const dim3 grid(static_cast<unsigned>(plan.splits),
                    static_cast<unsigned>(a.p.cache.heads * parts), static_cast<unsigned>(runs));
    cuda::launch_chained(stream, attend_few<Format, kDim, kTiles>, grid, kThreads, bytes, a);
    const dim3 sums(static_cast<unsigned>(a.p.q_heads),
                    static_cast<unsigned>(runs * plan.rows_max));
    cuda::launch_chained(stream, combine<kDim>, sums, kCombineThreads, combine_bytes, a);
  }
}

template <class Format, int kDim>
void launch_many(cudaStream_t stream, const kv::Attend& op) {
  const Args p = args_of(op);
  const int rows = op.q.rows(), queries = rows * (p.q_heads / p.cache.heads);
  const int prompts = std::min(op.seqs.seqs(), rows / (kv::kFewRows + 1));
  const int tiles = (queries + kManyQueries - 1) / kManyQueries + prompts;
  allow_shared(attend_many<Format, kDim>, many_shared_bytes<kDim>());
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(p.cache.heads));
  cuda::launch_chained(stream, attend_many<Format, kDim>, grid, kThreads, many_shared_bytes<kDim>(),
                       p);
}

template <class Format, int kDim>
void launch_attend(cudaStream_t stream, const kv::Attend& op, std::span<std::byte> scratch) {
  const int group = op.q.cols() / (op.cache.heads * kDim);
  const int queries = few_plan(op).rows_max * group;
  if (queries <= 8) {
    launch_few<Format, kDim, 1>(stream, op, scratch);
  } else if (queries <= 32) {
    launch_few<Format, kDim, 4>(stream, op, scratch);
  } else {
    launch_few<Format, kDim, 8>(stream, op, scratch);
  }
  if (op.seqs.seqs() > 0 && op.q.rows() > kv::kFewRows) launch_many<Format, kDim>(stream, op);
}

template <class Format>
void launch_attend(Stream& stream, const kv::Attend& op, std::span<std::byte> scratch) {
  const cudaStream_t native = cuda::native(stream);
  if (op.cache.head_dim == 64) return launch_attend<Format, 64>(native, op, scratch);
  if (op.cache.head_dim == 128) return launch_attend<Format, 128>(native, op, scratch);
  launch_attend<Format, 256>(native, op, scratch);
}

inline size_t attend_scratch_bytes(const kv::Attend& op) { return few_plan(op).bytes; }

}  // namespace exode::kv_cuda
