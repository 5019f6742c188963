// Gated DeltaNet in chunks of kGdnChunk positions on tensor cores: best for long slices.
#pragma once

#include "ops/cuda/cuda.h"

namespace exode::cuda {

// Slices of up to kGdnFewRows rows are left to gdn_few_launch().
size_t gdn_chunk_scratch_bytes(const ops::GatedDeltaNet&);
void gdn_chunk_launch(Stream&, const ops::GatedDeltaNet&, Scratch scratch);

}  // namespace exode::cuda
