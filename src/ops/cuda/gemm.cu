// Packing of x for the gemms, and the choice of codec and kernel.
#include "ops/cuda/gemm.h"

#include "ops/cuda/gemm_kernels.cuh"

namespace exode::cuda {
namespace gemm {
namespace {

constexpr int kPackThreads = 256;

__device__ inline float4 load_inputs(const float* from, int left, bool aligned) {
  if (aligned && left >= 4) return *reinterpret_cast<const float4*>(from);
  return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f,
                     left > 2 ? from[2] : 0.0f, left > 3 ? from[3] : 0.0f);
}

struct PackArgs {
  ConstRows x;
  uint8_t* to;
  int tokens, tokens_padded, cols, tasks;  // tasks of a row
  bool aligned;
};

// A thread takes a task of eight inputs. Tokens past the last are left as they are: a column of the
// product never meets another.
template <class Codec>
__global__ void __launch_bounds__(kPackThreads) pack_inputs(PackArgs a) {
  start_next();
  const int task = blockIdx.x * kPackThreads + threadIdx.x, token = blockIdx.y;
  wait_for_earlier();
  if (task >= a.tasks) return;
  const int block = task / kBlockTasks, in_block = task % kBlockTasks;
  float4 v[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int k = block * kBlock + Codec::input(in_block, half);
    v[half] = load_inputs(a.x.row(token) + k, a.cols - k, a.aligned);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int place = Codec::place(Codec::pair_input(in_block, i));
    const int64_t chunk = int64_t{block} * (kBlock / kChunk) + place / kChunk;
    const int piece = place % kChunk / 8 ^ token % 8;
    const float2 pair = Codec::pair(v[0], v[1], i);
    *reinterpret_cast<__half2*>(a.to + (chunk * a.tokens_padded + token) * kLineBytes + piece * 16 +
                                place % 8 * 2) = finite_halves(pair.x, pair.y);
  }
}

template <class Codec>
void pack(cudaStream_t stream, const ConstTensorView& x, const Args& a) {
  PackArgs p{};
  p.x = rows_of(x);
  p.to = const_cast<uint8_t*>(a.x);
  p.tokens = a.tokens;
  p.tokens_padded = a.tokens_padded;
  p.cols = x.cols();
  p.tasks = a.w.blocks * kBlockTasks;
  p.aligned = x.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  const dim3 grid(blocks_for(p.tasks, kPackThreads), static_cast<unsigned>(a.tokens));
  launch_chained(stream, pack_inputs<Codec>, grid, kPackThreads, 0, p);
}

Weights weights_of(const WeightView& w) {
  Weights out{};
  const auto code_size = static_cast<int64_t>(dtype_bytes(w.codes.dtype));
  out.codes = reinterpret_cast<const uint8_t*>(w.codes.data);
  out.row_bytes = static_cast<uint32_t>(w.codes.row_stride * code_size);
  out.code_bytes = static_cast<int>(w.codes.cols() * code_size);
  out.strip = w.strip;
  out.rows = w.rows;
  out.blocks = (w.cols + kBlock - 1) / kBlock;
  out.group = w.group;
  if (!w.scales.empty()) {
    out.scales = w.scales.row<float>(0);
    out.scale_stride = static_cast<uint32_t>(w.scales.row_stride);
    out.groups = w.scales.cols();
  }
  if (!w.zeros.empty()) {
    out.zeros = w.zeros.row<uint8_t>(0);
    out.zero_stride = static_cast<uint32_t>(w.zeros.row_stride);
  }
  return out;
}

int padded(int tokens) { return (tokens + kTokenPad - 1) / kTokenPad * kTokenPad; }

// Calls body(codec) with the codec of the weights; gemm_applies() has checked that there is one.
template <class Body>
void with_codec(const WeightView& w, const Body& body) {
  if (w.layout == WeightLayout::kFp8Block) return body(Fp8{});
  if (w.layout == WeightLayout::kDense) {
    if (w.codes.dtype == DType::kF16) return body(Dense<__half>{});
    return body(Dense<__nv_bfloat16>{});
  }
  const bool zeros = !w.zeros.empty(), fine = w.group < kBlock;
  if (fine) return zeros ? body(Int4<true, 4>{}) : body(Int4<false, 4>{});
  return zeros ? body(Int4<true, 1>{}) : body(Int4<false, 1>{});
}

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  EXODE_CUDA_CHECK(cudaGetDevice(&device));
  EXODE_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

bool has_wgmma() { return attribute(cudaDevAttrComputeCapabilityMajor) == 9; }

size_t packed_bytes(const ConstTensorView& x) {
  const int chunks = (x.cols() + kBlock - 1) / kBlock * (kBlock / kChunk);
  return static_cast<size_t>(padded(x.rows())) * static_cast<size_t>(chunks) * kLineBytes;
}

struct Problem {
  const ConstTensorView& x;
  const WeightView& w;
  const TensorView& out;
  bool swiglu;
};

void run_problem(Stream& stream, const Problem& p, Scratch scratch) {
  EXODE_CHECK(scratch.size() >= gemm_scratch_bytes(p.x), "gemm: too little scratch");
  Args a{};
  a.w = weights_of(p.w);
  // Where the space begins is the arena's choice; copies want their own alignment.
  const auto at = (reinterpret_cast<uintptr_t>(scratch.data()) + kLineBytes - 1) / kLineBytes;
  a.x = reinterpret_cast<const uint8_t*>(at * kLineBytes);
  a.handover = reinterpret_cast<std::byte*>(at * kLineBytes) + packed_bytes(p.x);
  a.flags = stream.counters().data();
  a.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  EXODE_CHECK(stream.counters().size() >= static_cast<size_t>(a.multiprocessors * kWarps),
              "gemm: more multiprocessors than counters");
  a.out = rows_of(p.out);
  a.tokens = p.x.rows();
  a.tokens_padded = padded(a.tokens);
  a.outputs = p.out.cols();
  a.wide_stores = p.out.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(p.out.data) % 16 == 0;
  with_codec(p.w, [&](auto codec) {
    using Codec = decltype(codec);
    pack<Codec>(native(stream), p.x, a);
    if (has_wgmma()) return run_wgmma<Codec>(native(stream), a, p.swiglu);
    run_mma<Codec>(native(stream), a, p.swiglu);
  });
}

}  // namespace
}  // namespace gemm

bool gemm_applies(const WeightView& w) {
  if (w.layout == WeightLayout::kInt8Group) return false;
  const auto bytes = static_cast<int64_t>(dtype_bytes(w.codes.dtype));
  const bool aligned = reinterpret_cast<uintptr_t>(w.codes.data) % 16 == 0 &&
                       w.codes.row_stride * bytes % 16 == 0 && w.codes.cols() * bytes % 16 == 0;
  const bool small = w.codes.row_stride * bytes * w.rows < int64_t{UINT32_MAX};
  return aligned && small && (w.layout != WeightLayout::kDense || bytes == 2);
}

size_t gemm_scratch_bytes(const ConstTensorView& x) {
  const size_t packed = gemm::packed_bytes(x) + gemm::kLineBytes;
  if (!gemm::has_wgmma()) return packed;
  const int count = gemm::attribute(cudaDevAttrMultiProcessorCount);
  return packed + static_cast<size_t>(count) * gemm::kWgmmaHandoverBytes;
}

void gemm_launch(Stream& stream, const ops::MatMul& op, Scratch scratch) {
  gemm::run_problem(stream, {op.x, op.w, op.out, false}, scratch);
}
void gemm_launch(Stream& stream, const ops::MatMulSwiGlu& op, Scratch scratch) {
  gemm::run_problem(stream, {op.x, op.w, op.out, true}, scratch);
}

}  // namespace exode::cuda
