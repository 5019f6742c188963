#include "weights/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "weights/synthetic.h"

namespace exode {
namespace {

namespace fs = std::filesystem;

constexpr size_t kConfigBytesMax = 16u << 20;
constexpr size_t kIndexBytesMax = 100u << 20;
constexpr int kJsonDepthMax = 64;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kExtraName = "model_extra_tensors.safetensors";  // AutoRound puts MTP here

using WeightMap = std::map<std::string, std::string>;  // tensor → file

Result<nlohmann::json> read_json(const std::string& path, size_t limit_bytes) {
  EXODE_ASSIGN(const std::string text, read_text_file(path, limit_bytes));
  bool too_deep = false;
  const auto limit_depth = [&too_deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kJsonDepthMax;
    return !too_deep;
  };
  nlohmann::json json = nlohmann::json::parse(text, limit_depth, /*allow_exceptions=*/false);
  if (too_deep) {
    return invalid(fmt::format("{}: nested deeper than {} levels", path, kJsonDepthMax));
  }
  if (!json.is_object()) return invalid(fmt::format("{}: not a JSON object", path));
  return json;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\") == std::string::npos && name.find('\0') == std::string::npos;
}

Result<std::vector<std::string>> list_files(const std::string& directory) {
  std::error_code code;
  std::vector<std::string> names;
  fs::directory_iterator it(directory, code);
  for (; !code && it != fs::directory_iterator(); it.increment(code)) {
    names.push_back(it->path().filename().string());
  }
  if (code) {
    return not_found(
        fmt::format("{}: cannot read the model folder: {}", directory, code.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What the folder holds instead of the file we miss.
std::string hint(const std::vector<std::string>& names) {
  const auto has = [&names](std::string_view ending) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& n) { return n.ends_with(ending); });
  };
  std::string found;
  if (has(".gguf")) {
    found = " It holds GGUF files, which are not supported.";
  } else if (has(".bin") || has(".pt") || has(".pth")) {
    found = " It holds PyTorch .bin files, which are not supported.";
  }
  return found + " Give a Hugging Face folder with config.json and *.safetensors files.";
}

Result<WeightMap> read_index(const std::string& path) {
  EXODE_ASSIGN(const nlohmann::json index, read_json(path, kIndexBytesMax));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return invalid(fmt::format("{}: has no weight_map object", path));
  }
  WeightMap result;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      return invalid(fmt::format("{}: the file of tensor {} is not a string", path, tensor));
    }
    const auto& name = file.get_ref<const std::string&>();
    if (!is_plain_name(name)) {
      return invalid(
          fmt::format("{}: tensor {} is in \"{}\", which is not a file name of this "
                      "folder",
                      path, tensor, name));
    }
    result.emplace(tensor, name);
  }
  return result;
}

// Names of the shards to open: those of the index; without one model.safetensors, or every
// .safetensors file when there is none by that name.
Result<std::vector<std::string>> shard_names(const std::string& directory,
                                             const std::vector<std::string>& names,
                                             const WeightMap& index) {
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index) shards.insert(file);
  const bool has_single = std::binary_search(names.begin(), names.end(), std::string(kSingleName));
  for (const std::string& name : names) {
    const bool wanted = has_single ? name == kSingleName : name.ends_with(".safetensors");
    if (name == kExtraName || (index.empty() && wanted)) {
      shards.insert(name);
    }
  }
  if (shards.empty()) {
    return not_found(fmt::format("{}: no .safetensors files.{}", directory, hint(names)));
  }
  for (const std::string& shard : shards) {
    if (!std::binary_search(names.begin(), names.end(), shard)) {
      return not_found(
          fmt::format("{}: shard {} of the index is missing; download it again", directory, shard));
    }
  }
  return std::vector<std::string>(shards.begin(), shards.end());
}

std::string join(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / name).string();
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& directory) {
  EXODE_ASSIGN(const std::vector<std::string> names, list_files(directory));
  const auto has = [&names](const char* name) {
    return std::binary_search(names.begin(), names.end(), std::string(name));
  };
  if (!has("config.json")) {
    return not_found(fmt::format("{}: no config.json.{}", directory, hint(names)));
  }
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  EXODE_ASSIGN(checkpoint.config_, read_json(join(directory, "config.json"), kConfigBytesMax));
  WeightMap index;
  if (has(kIndexName)) {
    EXODE_ASSIGN(index, read_index(join(directory, kIndexName)));
  }
  EXODE_ASSIGN(const std::vector<std::string> shards, shard_names(directory, names, index));
  std::map<std::string, std::string> home;  // tensor → the shard it came from
  for (const std::string& shard : shards) {
    const std::string path = join(directory, shard);
    EXODE_ASSIGN(MappedFile file, MappedFile::open(path));
    EXODE_ASSIGN(auto tensors, parse_safetensors(file.bytes(), path));
    for (auto& [name, tensor] : tensors) {
      const auto listed = index.find(name);
      // Shards of a re-sharded folder may hold stale copies: the index says which one counts.
      if (listed != index.end() && listed->second != shard) continue;
      if (!checkpoint.tensors_.emplace(name, std::move(tensor)).second) {
        return invalid(
            fmt::format("{}: tensor {} is in both {} and {}", directory, name, home[name], shard));
      }
      home[name] = shard;
    }
    checkpoint.files_.push_back(std::move(file));
  }
  for (const auto& [tensor, shard] : index) {
    if (!home.contains(tensor)) {
      return invalid(fmt::format("{}: the index places tensor {} in {}, which does not hold it",
                                 directory, tensor, shard));
    }
  }
  return checkpoint;
}

const RawTensor* Checkpoint::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

Result<Checkpoint> Checkpoint::synthetic(const std::string& name) {
  EXODE_ASSIGN(SyntheticModel model, make_synthetic_model(name));
  Checkpoint checkpoint;
  checkpoint.directory_ = name;
  checkpoint.synthetic_ = true;
  checkpoint.config_ = std::move(model.config);
  checkpoint.tensors_ = std::move(model.tensors);
  return checkpoint;
}

uint64_t Checkpoint::file_bytes() const {
  uint64_t bytes = 0;
  if (synthetic_) {
    for (const auto& [name, tensor] : tensors_) bytes += tensor.bytes();
  }
  for (const MappedFile& file : files_) bytes += file.bytes().size();
  return bytes;
}

}  // namespace exode
