// Gated DeltaNet in one kernel, f32 throughout: a walk over the rows of each slice. For few rows it
// is bound by the state's read and write. A row has the same bits whatever its neighbours.
//
// The kernel reads the state while the kernels launched before it still run: between two of its
// launches on the same slot the stream must have passed a copy or a graph's start, as it does
// between steps.
#pragma once

#include "ops/cuda/cuda.h"

namespace exode::cuda {

bool gdn_fuses(const ops::GatedDeltaNet&);  // whether there are fused kernels for the shape

// Whether no slice can be long enough for the chunked kernels to be faster.
bool gdn_is_few(const ops::GatedDeltaNet&);

enum class GdnSlices : uint8_t { kAll, kShort };  // kShort: those of up to kGdnFewRows rows
void gdn_few_launch(Stream&, const ops::GatedDeltaNet&, GdnSlices slices);

}  // namespace exode::cuda
