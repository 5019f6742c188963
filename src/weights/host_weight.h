// A weight matrix on its way from a checkpoint format to a kernel layout: formats decode into
// this, packers (weights/pack.h) turn it into the layouts of tensor/weight.h. In plan mode the
// vectors are empty and only the description counts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/weight.h"
#include "weights/checkpoint.h"

namespace exode {

struct HostWeight {
  WeightLayout layout = WeightLayout::kDense;
  DType dtype = DType::kF32;           // of dense codes
  int32_t rows = 0, cols = 0, group = 0;
  bool has_zeros = false;
  std::vector<std::byte> dense;        // kDense: [rows, cols] of dtype; kFp8Block: e4m3 bytes
  std::vector<uint8_t> codes;          // kInt4Group: one code 0…15 per byte, [rows, cols]
  std::vector<float> scales;           // as tensor/weight.h
  std::vector<uint8_t> zeros;          // as tensor/weight.h, when has_zeros
};

// How one checkpoint format stores a linear module.
struct WeightFormat {
  std::string_view name;
  bool (*matches)(const Checkpoint&, const std::string& module);
  // decode = false checks shapes and dtypes and fills the description only. `used` gets the
  // names of the tensors that belong to the module.
  Result<HostWeight> (*read)(const Checkpoint&, const std::string& module, int32_t rows,
                             int32_t cols, bool decode, std::vector<std::string>& used);
};

std::span<const WeightFormat> weight_formats();  // first match wins
std::vector<float> dequantize(const HostWeight& weight);  // [rows, cols]

}  // namespace exode
