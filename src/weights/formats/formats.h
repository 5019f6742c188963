// The checkpoint formats, one file each; the table is in weights/formats.cc.
#pragma once

#include "weights/host_weight.h"

namespace exode {

extern const WeightFormat kPlainFormat;
extern const WeightFormat kGptqInt4Format;
extern const WeightFormat kAwqInt4Format;
extern const WeightFormat kCtInt4Format;
extern const WeightFormat kFp8BlockFormat;

}  // namespace exode
