// Models without files: names, shapes and config of public checkpoints, values made up where they
// are used. A matrix keeps the variance of its input, so activations stay near one however deep
// the model is; the tokens mean nothing.
//
//   EXODE_ASSIGN(auto checkpoint, Checkpoint::synthetic("qwen3.6-27b-int4"));
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "tensor/weight.h"
#include "weights/checkpoint.h"

namespace exode {

struct SyntheticModel {
  nlohmann::json config;
  std::map<std::string, RawTensor> tensors;
};

// The error of an unknown name lists the known ones.
Result<SyntheticModel> make_synthetic_model(const std::string& name);
std::string synthetic_names();  // "a, b, c"

// Fills device memory; the values depend on the name only.
void fill_synthetic(Device& device, const std::string& name, const WeightView& view);
// `out` evenly from the tensor's range.
void synthetic_values(const std::string& name, const RawTensor& tensor, std::span<float> out);

}  // namespace exode
