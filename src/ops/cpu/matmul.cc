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
  const int32_t threads = caps.multiprocessors;
  return (padded_floats(op) + static_cast<size_t>(threads) * kScratchFloats) * sizeof(float) +
         fixed_bytes(op.w, op.x.rows(), threads);
}

namespace {

void multiply(Stream& stream, const ops::MatMul& op, Scratch scratch, bool fast) {
  require_f32({op.x, op.out});
  auto* fixed = reinterpret_cast<FixedSegment*>(scratch.data());
  auto* memory = reinterpret_cast<float*>(scratch.data() +
                                          fixed_bytes(op.w, op.x.rows(), stream.pool().size()));
  MatMulJob job{.w = &op.w,
                .x = op.x.row<float>(0),
                .x_stride = op.x.row_stride,
                .rows = op.x.rows(),
                .out = op.out.row<float>(0),
                .out_stride = op.out.row_stride,
                .scratch = memory + padded_floats(op),
                .fixed = fixed,
                .fast = fast};
  if (needs_padding(op)) {
    pad_rows(job.x, job.x_stride, job.rows, op.w.cols, memory);
    job.x = memory;
    job.x_stride = padded_cols(op.w.cols);
  }
  matmul_all(stream.pool(), job);
}

// The product of both halves, before they are combined.
TensorView both_halves(const ops::MatMulSwiGlu& op, std::byte* memory) {
  return dense_view(memory, DType::kF32, {op.x.rows(), op.w.rows});
}
size_t both_halves_bytes(const ops::MatMulSwiGlu& op) {
  const size_t bytes =
      static_cast<size_t>(op.x.rows()) * static_cast<size_t>(op.w.rows) * sizeof(float);
  return (bytes + 63) / 64 * 64;
}

}  // namespace

size_t scratch_bytes(const DeviceCaps& caps, const ops::MatMulSwiGlu& op) {
  const ops::MatMul product{.x = op.x, .w = op.w, .out = both_halves(op, nullptr)};
  return both_halves_bytes(op) + scratch_bytes(caps, product);
}

namespace {

void multiply(Stream& stream, const ops::MatMulSwiGlu& op, Scratch scratch, bool fast) {
  const TensorView halves = both_halves(op, scratch.data());
  multiply(stream, ops::MatMul{.x = op.x, .w = op.w, .out = halves},
           scratch.subspan(both_halves_bytes(op)), fast);
  launch(stream, ops::SwiGlu{.gate_up = halves, .out = op.out}, {});
}

}  // namespace

void launch(Stream& stream, const ops::MatMul& op, Scratch scratch) {
  multiply(stream, op, scratch, false);
}
void launch(Stream& stream, const ops::MatMulSwiGlu& op, Scratch scratch) {
  multiply(stream, op, scratch, false);
}
void launch_fast(Stream& stream, const ops::MatMul& op, Scratch scratch) {
  multiply(stream, op, scratch, true);
}
void launch_fast(Stream& stream, const ops::MatMulSwiGlu& op, Scratch scratch) {
  multiply(stream, op, scratch, true);
}

}  // namespace exode::cpu
