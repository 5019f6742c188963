// Streamed matmul of int4 weights with groups of whole blocks, and the choice among the codecs.
#include "ops/cuda/matmul_stream_kernel.cuh"

namespace exode::cuda {
namespace {

// Below this a matrix has too few pairs to occupy the machine in runs worth joining.
constexpr int64_t kDenseBytesMin = int64_t{4} << 20;

bool streams_dense(const WeightView& w) {
  const bool is_16_bit = w.codes.dtype == DType::kBF16 || w.codes.dtype == DType::kF16;
  return is_16_bit && w.cols % 32 == 0 && w.codes.row_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(w.codes.data) % 16 == 0 &&
         int64_t{w.rows} * w.cols * 2 >= kDenseBytesMin;
}

template <class Op>
void launch_streamed(Stream& stream, const Op& op) {
  const StreamProblem p{op.x, op.w, op.out, std::is_same_v<Op, ops::MatMulSwiGlu>};
  if (op.w.layout == WeightLayout::kInt8Group) return stream_int8(stream, p);
  if (op.w.layout == WeightLayout::kDense) return stream_dense(stream, p);
  if (op.w.group % kInt4Block != 0) return stream_int4_groups(stream, p);
  run_problem<Int4Codec>(stream, p);
}

}  // namespace

bool streams(const WeightView& w) {
  switch (w.layout) {
    case WeightLayout::kInt4Group:
    case WeightLayout::kInt8Group:
      return true;
    case WeightLayout::kDense:
      return streams_dense(w);
    case WeightLayout::kFp8Block:
      return false;
  }
  return false;
}

void stream_launch(Stream& stream, const ops::MatMul& op) { launch_streamed(stream, op); }
void stream_launch(Stream& stream, const ops::MatMulSwiGlu& op) { launch_streamed(stream, op); }

}  // namespace exode::cuda
