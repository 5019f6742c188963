#include "ops/cpu/cpu.h"
#include "ops/cpu/matmul_kernel.h"

namespace exode::cpu {
namespace {

bool needs_padding(const ops::MatMul& op) { return op.w.cols % kInt4Block != 0; }

size_t padded_floats(const ops::MatMul& op) {
  return needs_padding(op)
             ? static_cast<size_t>(op.x.rows()) * static_cast<size_t>(padded_cols(op.w.cols))
             : 0;
}

}  // namespace

size_t scratch_bytes(const DeviceCaps& caps, const ops::MatMul& op) {
  const size_t threads = static_cast<size_t>(caps.multiprocessors);
  return (padded_floats(op) + threads * kScratchFloats) * sizeof(float);
}

void launch(Stream& stream, const ops::MatMul& op, Scratch scratch) {
  require_f32({op.x, op.out});
  auto* memory = reinterpret_cast<float*>(scratch.data());
  MatMulJob job{.w = &op.w,
                .x = op.x.row<float>(0),
                .x_stride = op.x.row_stride,
                .rows = op.x.rows(),
                .out = op.out.row<float>(0),
                .out_stride = op.out.row_stride,
                .scratch = memory + padded_floats(op)};
  if (needs_padding(op)) {
    pad_rows(job.x, job.x_stride, job.rows, op.w.cols, memory);
    job.x = memory;
    job.x_stride = padded_cols(op.w.cols);
  }
  matmul_all(stream.pool(), job);
}

}  // namespace exode::cpu
