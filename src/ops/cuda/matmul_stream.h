// Matmuls on tensor cores that stream the weights once per 32 rows: best for few rows.
#pragma once

#include "ops/cuda/cuda.h"

namespace exode::cuda {

bool streams(const WeightView& w);  // whether there is a streamed kernel for the layout
void stream_launch(Stream&, const ops::MatMul&);
void stream_launch(Stream&, const ops::MatMulSwiGlu&);

}  // namespace exode::cuda
