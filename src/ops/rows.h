// How the rows of a step are divided among sequences. Device memory, i32 throughout.
#pragma once

#include "tensor/tensor.h"

namespace exode {

// Rows [row_first[s], row_first[s] + row_count[s]) belong to sequence s of the step; a sequence
// with row_count 0 is padding. `fresh` = 1: the sequence starts here, its recurrent state is zero
// whatever the slot holds.
struct SeqRows {
  ConstTensorView row_first, row_count, state_slot, fresh;  // [seqs]
  int32_t seqs() const { return row_first.rows(); }
};

}  // namespace exode
