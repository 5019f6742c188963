// Reading reference outputs, and running the engine on them.
#pragma once

#include <string>
#include <vector>

#include "engine/api.h"
#include "weights/checkpoint.h"

namespace exode::testing {

// One safetensors file of reference tensors.
class Reference {
 public:
  explicit Reference(const std::string& path);
  bool has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<TokenId> ids(const std::string& name) const;   // i64
  std::vector<float> floats(const std::string& name) const;  // f32
  int64_t dim(const std::string& name, size_t axis) const;

 private:
  MappedFile file_;
  std::map<std::string, RawTensor> tensors_;
};

// What the tests open, unless the command line says otherwise (main.cc).
struct GoldenPlaces {
  std::string device = "cpu";
  std::string references;   // <fixture>/reference.safetensors
  std::string checkpoints;  // <fixture>/config.json and weights
};
GoldenPlaces& golden_places();

EngineConfig engine_config(const std::string& model, int32_t chunk, DType dtype = DType::kF32);

// Logits of every position, [tokens, vocab].
std::vector<float> all_logits(Engine& engine, const std::vector<TokenId>& ids);

// Submits all requests at once and returns the new tokens of each. Starts the engine.
std::vector<std::vector<TokenId>> generate_all(Engine& engine, std::vector<Request> requests);

Request greedy(std::vector<TokenId> prompt, int32_t count);

}  // namespace exode::testing
