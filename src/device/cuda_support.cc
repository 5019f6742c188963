#include "device/cuda_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace exode {
namespace {

// Numbers of cudaError_t: this file is part of builds without CUDA.
constexpr int kMemoryAllocation = 2, kInsufficientDriver = 35, kDevicesUnavailable = 46,
              kNoDevice = 100;
constexpr int kComputeMajorMin = 8;  // mma.sync with bf16, cp.async

constexpr std::string_view kElse = "or use --device cpu";

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

double gib(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// Of "80,86,90a": 80. 0 when there is no number.
int oldest_arch(std::string_view archs) {
  int oldest = 0;
  const char* end = archs.data() + archs.size();
  for (const char* p = archs.data(); p < end; ++p) {
    int arch = 0;
    const auto [rest, error] = std::from_chars(p, end, arch);
    if (error == std::errc()) oldest = oldest == 0 ? arch : std::min(oldest, arch);
    p = std::find(rest, end, ',');
  }
  return oldest;
}

}  // namespace

Error explain(const CudaFailure& f) {
  if (f.status == kInsufficientDriver && f.driver_version == 0) {
    return unsupported(
        fmt::format("no NVIDIA driver is loaded: install one that supports CUDA {} (a container "
                    "must be given the GPU: docker run --gpus all), {}",
                    version(f.runtime_version), kElse));
  }
  if (f.status == kInsufficientDriver) {
    return unsupported(
        fmt::format("the NVIDIA driver supports CUDA {}, this exode needs {}: update the driver "
                    "(nvidia-smi shows its version), {}",
                    version(f.driver_version), version(f.runtime_version), kElse));
  }
  if (f.status == kNoDevice) {
    return unsupported(
        fmt::format("the NVIDIA driver shows no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES (a "
                    "container must be given the GPU: docker run --gpus all), {}",
                    kElse));
  }
  if (f.status == kDevicesUnavailable) {
    return unsupported(
        fmt::format("the GPU takes no further program (exclusive mode): stop the one that "
                    "nvidia-smi lists, {}",
                    kElse));
  }
  if (f.status == kMemoryAllocation) {
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("the GPU has no memory left to start on: stop the programs that "
                             "nvidia-smi lists, {}",
                             kElse)};
  }
  return unsupported(fmt::format("the CUDA device cannot be used: {}; check it with nvidia-smi, {}",
                                 f.text, kElse));
}

Status require_usable(const CudaGpu& gpu, std::string_view archs, size_t reserve_bytes) {
  if (gpu.major < kComputeMajorMin) {
    return unsupported(
        fmt::format("{} has compute capability {}.{}, exode needs {}.0 (Ampere) or newer: choose "
                    "another GPU with --device cuda:N, {}",
                    gpu.name, gpu.major, gpu.minor, kComputeMajorMin, kElse));
  }
  const int arch = 10 * gpu.major + gpu.minor, oldest = oldest_arch(archs);
  if (arch < oldest) {
    return unsupported(
        fmt::format("this exode has code for compute capability {}.{} and newer, {} has {}.{}: "
                    "configure its build with -DEXODE_CUDA_ARCHS={}, {}",
                    oldest / 10, oldest % 10, gpu.name, gpu.major, gpu.minor, arch, kElse));
  }
  if (gpu.free_bytes <= reserve_bytes) {
    return Error{
        ErrorCode::kOutOfMemory,
        fmt::format("{} has {:.2f} of {:.2f} GiB free, of which exode leaves {:.2f} to the driver: "
                    "stop the programs that nvidia-smi lists, {}",
                    gpu.name, gib(gpu.free_bytes), gib(gpu.total_bytes), gib(reserve_bytes),
                    kElse)};
  }
  return Done{};
}

}  // namespace exode
