// What every op with a weight matrix checks about it.
#pragma once

#include "tensor/weight.h"

namespace exode::ops {

// Aborts when codes, scales and zeros do not have the shapes of the layout (tensor/weight.h).
void validate_weight(const char* what, const WeightView& w);

}  // namespace exode::ops
