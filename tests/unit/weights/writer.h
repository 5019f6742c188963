// Writes tiny Hugging Face folders for tests.
//
//   TestFolder folder("loader_basic");
//   SafetensorsWriter writer;
//   writer.add("model.norm.weight", "F32", {2}, std::vector<float>{1, 2});
//   folder.write("config.json", "{}");
//   folder.write("model.safetensors", writer.bytes());
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace exode::test {

// A file image: header length, header, data.
inline std::string safetensors_image(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string image(sizeof(length), '\0');
  std::memcpy(image.data(), &length, sizeof(length));
  return image + header + data;
}

class SafetensorsWriter {
 public:
  template <class T>
  void add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
           const std::vector<T>& values) {
    const size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
  }
  std::string bytes() const { return safetensors_image(header_.dump(), data_); }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  std::string data_;
};

// A directory that lives as long as the object; the process id keeps parallel tests apart.
class TestFolder {
 public:
  explicit TestFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("exode_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path() const { return path_.string(); }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  // config.json and model.safetensors.
  void write_checkpoint(const nlohmann::json& config, const SafetensorsWriter& writer) const {
    write("config.json", config.dump());
    write("model.safetensors", writer.bytes());
  }

 private:
  std::filesystem::path path_;
};

}  // namespace exode::test
