#include "device/device.h"

#include <fmt/format.h>

#include <utility>

namespace exode {

std::string_view backend_name(Backend backend) {
  constexpr std::string_view kNames[] = {"ref", "cpu", "cuda"};
  return kNames[static_cast<int>(backend)];
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(owner_, other.owner_);
  std::swap(free_, other.free_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr && free_ != nullptr) free_(owner_, data_, bytes_);
}

Result<std::unique_ptr<Device>> open_device(const DeviceOptions& options) {
  if (options.name == "cpu") return open_cpu_device(options);
  if (options.name == "cuda" || options.name.starts_with("cuda:")) return open_cuda_device(options);
  return invalid(fmt::format("unknown device '{}'; use cpu or cuda", options.name));
}

}  // namespace exode
