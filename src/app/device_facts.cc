#include "app/device_facts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/mapped_file.h"

namespace exode::app {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr int32_t kConsumerShared = 99 << 10, kHopperShared = 227 << 10;
constexpr size_t kGiB = size_t{1} << 30;

struct Known {
  const char* name;
  int32_t multiprocessors, shared_bytes;
  size_t memory_bytes;
};
constexpr Known kKnown[] = {{"rtx-3090", 82, kConsumerShared, 24 * kGiB},
                            {"rtx-4090", 128, kConsumerShared, 24 * kGiB},
                            {"rtx-5090", 170, kConsumerShared, 32 * kGiB},
                            {"rtx-5090m", 82, kConsumerShared, 24 * kGiB},
                            {"h200", 132, kHopperShared, 140 * kGiB}};

Result<DeviceCaps> read_facts(const std::string& path) {
  EXODE_ASSIGN(const std::string source, read_text_file(path, kFileBytesMax));
  const nlohmann::json json = nlohmann::json::parse(source, nullptr, false);
  if (!json.is_object()) return invalid(fmt::format("{}: not a JSON object", path));
  const auto count = [&](const char* key, uint64_t high) -> Result<uint64_t> {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_number_unsigned() || *it == 0u || *it > high) {
      return invalid(fmt::format("{}: {} must be a whole number of 1…{}", path, key, high));
    }
    return it->get<uint64_t>();
  };
  DeviceCaps caps;
  const auto name = json.find("name");
  caps.name = name != json.end() && name->is_string() ? name->get<std::string>() : path;
  EXODE_ASSIGN(const uint64_t multiprocessors, count("multiprocessors", 1 << 16));
  EXODE_ASSIGN(const uint64_t shared, count("shared_bytes_per_block", 1 << 30));
  EXODE_ASSIGN(caps.memory_bytes, count("memory_bytes", uint64_t{1} << 50));
  caps.multiprocessors = static_cast<int32_t>(multiprocessors);
  caps.shared_bytes_per_block = static_cast<int32_t>(shared);
  return caps;
}

}  // namespace

std::string device_fact_names() {
  std::string names;
  for (const Known& known : kKnown) {
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return names;
}

Result<DeviceCaps> load_device_facts(const std::string& name_or_path) {
  for (const Known& known : kKnown) {
    if (name_or_path != known.name) continue;
    DeviceCaps caps;
    caps.name = known.name;
    caps.multiprocessors = known.multiprocessors;
    caps.shared_bytes_per_block = known.shared_bytes;
    caps.memory_bytes = known.memory_bytes;
    return caps;
  }
  const Result<DeviceCaps> read = read_facts(name_or_path);
  if (read.ok() || read.error().code != ErrorCode::kNotFound) return read;
  return not_found(fmt::format("--device-facts {}: neither a file nor one of {}", name_or_path,
                               device_fact_names()));
}

}  // namespace exode::app
