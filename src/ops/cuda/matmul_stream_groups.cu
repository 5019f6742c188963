// Streamed matmul of int4 weights with groups of 32 or 64.
#include "ops/cuda/matmul_stream_kernel.cuh"

namespace exode::cuda {

void stream_int4_groups(Stream& stream, const StreamProblem& p) {
  if (p.w.group == 32) return run_problem<Int4GroupCodec<32>>(stream, p);
  run_problem<Int4GroupCodec<64>>(stream, p);
}

}  // namespace exode::cuda
