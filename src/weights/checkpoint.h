// A Hugging Face folder: its JSON files and every tensor of its safetensors shards, mapped.
// Headers are untrusted: every length, offset, shape and dtype is checked before use.
//
//   EXODE_ASSIGN(auto checkpoint, Checkpoint::open("/models/Qwen3.6-27B-int4"));
//   const RawTensor* t = checkpoint.find("model.norm.weight");
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"

namespace exode {

enum class FileDType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool
};
std::string_view file_dtype_name(FileDType dtype);
size_t file_dtype_bytes(FileDType dtype);

struct RawTensor {
  FileDType dtype = FileDType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // any alignment; exactly shape × dtype bytes
  float low = 0, high = 0;          // synthetic floats: the range of their made-up values
  uint64_t bytes() const { return static_cast<uint64_t>(elements()) * file_dtype_bytes(dtype); }
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

// Tensors of one .safetensors file, by name. Spans point into `bytes`.
Result<std::map<std::string, RawTensor>> parse_safetensors(std::span<const std::byte> bytes,
                                                           const std::string& file_name);

class Checkpoint {
 public:
  // `directory` holds config.json and either model.safetensors.index.json with its shards or one
  // or more *.safetensors files. model_extra_tensors.safetensors is read even when not indexed.
  static Result<Checkpoint> open(const std::string& directory);
  // A public model's config, tensor names and shapes without any file: no tensor has data, and the
  // loader makes values up (weights/synthetic.h). For measurements and plans.
  static Result<Checkpoint> synthetic(const std::string& name);

  bool is_synthetic() const { return synthetic_; }
  const std::string& directory() const { return directory_; }
  const nlohmann::json& config() const { return config_; }
  const RawTensor* find(const std::string& name) const;  // nullptr when absent
  const std::map<std::string, RawTensor>& tensors() const { return tensors_; }
  uint64_t file_bytes() const;  // of all shards; synthetic: of all tensors

 private:
  std::string directory_;
  bool synthetic_ = false;
  nlohmann::json config_;
  std::vector<MappedFile> files_;
  std::map<std::string, RawTensor> tensors_;
};

}  // namespace exode
