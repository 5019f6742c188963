// Matmuls of few rows on tensor cores: the weights are streamed once, whatever the rows.
#pragma once

#include "ops/cuda/cuda.h"

namespace exode::cuda {

constexpr int kStreamRowsMax = 32;

// Whether there is a streamed kernel for the layout and the number of rows.
bool streams(const WeightView& w, int32_t rows);
template <class Op>
bool streams(const Op& op) {
  return streams(op.w, op.x.rows());
}

size_t stream_scratch_bytes(const DeviceCaps&, const ops::MatMul&);
size_t stream_scratch_bytes(const DeviceCaps&, const ops::MatMulSwiGlu&);
void stream_launch(Stream&, const ops::MatMul&, Scratch);
void stream_launch(Stream&, const ops::MatMulSwiGlu&, Scratch);

}  // namespace exode::cuda
