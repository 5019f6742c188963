// Streamed matmul of weights in the order of inputs: int8 groups, bf16 and f16.
#include "ops/cuda/matmul_stream_kernel.cuh"

namespace exode::cuda {

void stream_int8(Stream& stream, const StreamProblem& p) { run_problem<Int8Codec>(stream, p); }

void stream_dense(Stream& stream, const StreamProblem& p) {
  if (p.w.codes.dtype == DType::kBF16) return run_problem<Dense16Codec<true>>(stream, p);
  run_problem<Dense16Codec<false>>(stream, p);
}

}  // namespace exode::cuda
