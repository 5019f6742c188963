// Matmuls on tensor cores that stream the weights once per 32 rows: best for few rows.
#pragma once

#include "ops/cuda/cuda.h"

namespace exode::cuda {

bool streams(const WeightView& w);  // whether there is a streamed kernel for the layout
void stream_launch(Stream&, const ops::MatMul&);
void stream_launch(Stream&, const ops::MatMulSwiGlu&);

// Both ops, for the codecs in files of their own.
struct StreamProblem {
  ConstTensorView x;
  WeightView w;
  TensorView out;
  bool swiglu;
  StreamProblem rows(int32_t first, int32_t count) const {
    return {x.slice_rows(first, count), w, out.slice_rows(first, count), swiglu};
  }
};
void stream_int4_groups(Stream&, const StreamProblem&);
void stream_int8(Stream&, const StreamProblem&);
void stream_dense(Stream&, const StreamProblem&);

}  // namespace exode::cuda
