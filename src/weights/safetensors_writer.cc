#include "weights/safetensors_writer.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace exode {
namespace {

Error write_error(const std::string& path) {
  return io_error(fmt::format("{}: cannot write: {}", path, std::strerror(errno)));
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    const std::string& tensor, FileDType dtype,
                                                    const std::vector<int64_t>& shape) {
  SafetensorsWriter w;
  w.path_ = path;
  w.remaining_ = file_dtype_bytes(dtype);
  for (int64_t d : shape) w.remaining_ *= static_cast<uint64_t>(d);
  nlohmann::json header;
  header[tensor] = {{"dtype", file_dtype_name(dtype)},
                    {"shape", shape},
                    {"data_offsets", {uint64_t{0}, w.remaining_}}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  w.file_.reset(std::fopen(path.c_str(), "wb"));
  if (!w.file_) return write_error(path);
  const uint64_t length = text.size();
  const bool ok = std::fwrite(&length, sizeof(length), 1, w.file_.get()) == 1 &&
                  std::fwrite(text.data(), text.size(), 1, w.file_.get()) == 1;
  if (!ok) return write_error(path);
  return w;
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  EXODE_CHECK(bytes.size() <= remaining_, "more bytes than the tensor holds");
  if (!bytes.empty() && std::fwrite(bytes.data(), bytes.size(), 1, file_.get()) != 1) {
    return write_error(path_);
  }
  remaining_ -= bytes.size();
  return Done{};
}

Status SafetensorsWriter::finish() {
  EXODE_CHECK(remaining_ == 0, "fewer bytes than the tensor holds");
  if (std::fclose(file_.release()) != 0) return write_error(path_);
  return Done{};
}

}  // namespace exode
