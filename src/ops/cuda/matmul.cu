// Exact f32 matmul for every weight layout: one warp per output, weights dequantised in registers.
// Up to eight rows share one pass over the weights and keep the bits they would have alone.
#include "ops/cuda/weights.cuh"

namespace exode::cuda {
namespace {

constexpr int kWarps = 8;

template <class Weight, int R>
__global__ void matmul(Weight w, ConstRows x, Rows out, int first, int outputs) {
  const int n = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (n >= outputs) return;
  const int64_t row = first + int64_t{blockIdx.y} * R;
  float sum[R];
  warp_dot<Weight, R>(w, n, x, row, sum);
  if (threadIdx.x % kWarp != 0) return;
#pragma unroll
  for (int r = 0; r < R; ++r) out.row(row + r)[n] = sum[r];
}

template <class Weight, int R>
int run_rows(cudaStream_t stream, const Weight& w, const ops::MatMul& op, int first) {
  const int blocks = (op.x.rows() - first) / R;
  if (blocks == 0) return first;
  const dim3 grid(blocks_for(op.w.rows, kWarps), static_cast<unsigned>(blocks));
  matmul<Weight, R>
      <<<grid, kWarps * kWarp, 0, stream>>>(w, rows_of(op.x), rows_of(op.out), first, op.w.rows);
  launched();
  return first + blocks * R;
}

}  // namespace

void launch(Stream& stream, const ops::MatMul& op, Scratch) {
  with_weight(op.w, [&](const auto& w) {
    using Weight = std::decay_t<decltype(w)>;
    const cudaStream_t s = native(stream);
    int first = run_rows<Weight, 8>(s, w, op, 0);
    first = run_rows<Weight, 4>(s, w, op, first);
    first = run_rows<Weight, 2>(s, w, op, first);
    run_rows<Weight, 1>(s, w, op, first);
  });
}

size_t scratch_bytes(const DeviceCaps&, const ops::MatMulSwiGlu& op) {
  return static_cast<size_t>(op.x.rows()) * static_cast<size_t>(op.w.rows) * sizeof(float);
}

void launch(Stream& stream, const ops::MatMulSwiGlu& op, Scratch scratch) {
  const TensorView halves = dense_view(scratch.data(), DType::kF32, {op.x.rows(), op.w.rows});
  launch(stream, ops::MatMul{.x = op.x, .w = op.w, .out = halves}, {});
  launch(stream, ops::SwiGlu{.gate_up = halves, .out = op.out}, {});
}

}  // namespace exode::cuda
