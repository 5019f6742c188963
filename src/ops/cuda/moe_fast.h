// Experts on tensor cores: f16 products, f32 sums. Each expert's weights are read once for all rows
// that chose it, and the shared expert is one more expert that every row chose.
//   few rows (≤ 32)   two kernels bound by the weight stream; a row has the same bits for any count
//   more              pairs sorted by expert on the device, tiles of 64 pairs, passes of 2048 rows
#pragma once

#include "ops/cuda/cuda.h"

namespace exode::cuda {

// Whether the kernels below know the layouts and widths.
bool fast_experts_apply(const ops::MoeExperts& op);
size_t fast_experts_scratch_bytes(const DeviceCaps& caps, const ops::MoeExperts& op);
void fast_experts_launch(Stream& stream, const ops::MoeExperts& op, Scratch scratch);

namespace moe {

bool few_rows_apply(const ops::MoeExperts& op);
size_t few_rows_scratch_bytes(const ops::MoeExperts& op);
void few_rows_launch(Stream& stream, const ops::MoeExperts& op, Scratch scratch);
size_t grouped_scratch_bytes(const ops::MoeExperts& op);
void grouped_launch(Stream& stream, const ops::MoeExperts& op, Scratch scratch);

}  // namespace moe
}  // namespace exode::cuda
