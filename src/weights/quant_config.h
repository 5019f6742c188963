// What quantization_config of config.json says about one module. The tensors decide the format;
// this only settles what they cannot show: the zero-point convention and symmetry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "weights/checkpoint.h"

namespace exode {

struct QuantConfig {
  std::string method;         // "auto-round", "gptq", "awq", "compressed-tensors", "fp8" or empty
  int64_t group_size = 0;     // 0 = not stated, -1 = the whole row
  std::optional<bool> sym;    // unset: not stated, or stated differently for some modules
  bool zero_plus_one = true;  // GPTQ v1 stores zero - 1
};

// Refuses, with the module's name, unknown quantisation methods and quantised activations. `module`
// is a quantised module; per-module overrides apply.
Result<QuantConfig> quant_config_for(const Checkpoint& checkpoint, const std::string& module);

}  // namespace exode
