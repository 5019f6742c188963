// Rotary frequencies of a config: default, linear, llama3 (Llama 3.1 wavelength bands) and yarn
// (Peng et al. 2023), read from rope_parameters, the older rope_scaling, or flat fields.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"

namespace exode {

struct Rope {
  int32_t rotary_dim = 0;
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  float scale = 1;              // multiplies sin and cos (YaRN attention factor)
};

// `text_config` holds the fields; theta and partial rotary factor have family defaults.
Result<Rope> parse_rope(const nlohmann::json& text_config, int32_t head_dim, double default_theta,
                        double default_partial);

}  // namespace exode
