// One CUDA device: memory from cudaMalloc until the seal, one stream, copies in stream order.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

#include "device/cuda/cuda_check.h"
#include "device/cuda_support.h"
#include "device/device.h"

namespace exode {
namespace {

constexpr size_t kCounters = 16384;
constexpr size_t kExchangeBytes = size_t{16} << 20;
constexpr size_t kMargin = 512u << 20;  // left to the driver, the context and other programs
// Of kCudaReserve, what comes after the context: code, graphs and the stream's own buffers.
constexpr size_t kLateReserve = size_t{256} << 20;
constexpr std::chrono::milliseconds kHoldBack{8};

double gib(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

Status succeeded(cudaError_t status) {
  if (status == cudaSuccess) return Done{};
  CudaFailure failure{.status = status, .text = cudaGetErrorString(status)};
  cudaDriverGetVersion(&failure.driver_version);
  cudaRuntimeGetVersion(&failure.runtime_version);
  return explain(failure);
}

class CudaGraph final : public StepGraph {
 public:
  CudaGraph(cudaGraphExec_t graph, cudaStream_t stream) : graph_(graph), stream_(stream) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  void replay() override { EXODE_CUDA_CHECK(cudaGraphLaunch(graph_, stream_)); }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
};

// A host function at the head keeps the stream waiting while the host fills its queue.
class CudaClock final : public StreamClock {
 public:
  CudaClock(size_t marks, cudaStream_t stream) : stream_(stream), events_(marks) {
    for (cudaEvent_t& event : events_) EXODE_CUDA_CHECK(cudaEventCreate(&event));
    const auto hold = [](void*) { std::this_thread::sleep_for(kHoldBack); };
    EXODE_CUDA_CHECK(cudaLaunchHostFunc(stream_, hold, nullptr));
  }
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;
  ~CudaClock() override {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  void mark() override {
    EXODE_CHECK(used_ < events_.size(), "more marks than the clock was made for");
    EXODE_CUDA_CHECK(cudaEventRecord(events_[used_++], stream_));
  }
  std::vector<double> intervals() override {
    EXODE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    std::vector<double> seconds;
    for (size_t i = 1; i < used_; ++i) {
      float ms = 0;
      EXODE_CUDA_CHECK(cudaEventElapsedTime(&ms, events_[i - 1], events_[i]));
      seconds.push_back(static_cast<double>(ms) * 1e-3);
    }
    return seconds;
  }

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
  size_t used_ = 0;
};

size_t driver_used_bytes() {
  size_t free_bytes = 0, total_bytes = 0;
  EXODE_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  return total_bytes - free_bytes;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, const cudaDeviceProp& properties, size_t memory_bytes)
      : ordinal_(ordinal), stream_(nullptr, {}, {}) {
    EXODE_CUDA_CHECK(cudaStreamCreateWithFlags(&native_, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events_) {
      EXODE_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    EXODE_CUDA_CHECK(cudaMalloc(&counters_, kCounters * sizeof(int32_t)));
    EXODE_CUDA_CHECK(cudaMemset(counters_, 0, kCounters * sizeof(int32_t)));
    EXODE_CUDA_CHECK(cudaMalloc(&exchange_, kExchangeBytes));
    EXODE_CUDA_CHECK(cudaMemset(exchange_, Stream::kUnset & 0xff, kExchangeBytes));
    stream_ = Stream(static_cast<void*>(native_), {static_cast<int32_t*>(counters_), kCounters},
                     {static_cast<float*>(exchange_), kExchangeBytes / sizeof(float)});
    caps_.name = fmt::format("cuda:{} {}", ordinal, properties.name);
    caps_.multiprocessors = properties.multiProcessorCount;
    caps_.shared_bytes_per_block = static_cast<int32_t>(properties.sharedMemPerBlockOptin);
    caps_.memory_bytes = memory_bytes;
  }
  ~CudaDevice() override {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaStreamDestroy(native_);
    cudaFree(counters_);
    cudaFree(exchange_);
  }

  Backend backend() const override { return Backend::kCuda; }
  const DeviceCaps& caps() const override { return caps_; }
  Stream& stream() override { return stream_; }
  void seal() override { sealed_ = true; }
  size_t allocated_bytes() const override { return allocated_; }
  void synchronize() override { EXODE_CUDA_CHECK(cudaStreamSynchronize(native_)); }

  Result<Buffer> allocate(size_t bytes, std::string_view purpose) override {
    if (sealed_) {
      return Error{ErrorCode::kOutOfMemory,
                   fmt::format("memory is sealed: {} ({} bytes) was not planned", purpose, bytes)};
    }
    // The limit counts here, so that a small card can be emulated on a large one.
    if (bytes > caps_.memory_bytes - std::min(allocated_.load(), caps_.memory_bytes)) {
      return Error{ErrorCode::kOutOfMemory,
                   fmt::format("{} needs {:.2f} GiB, {:.2f} of {:.2f} GiB are taken", purpose,
                               gib(bytes), gib(allocated_), gib(caps_.memory_bytes))};
    }
    void* data = nullptr;
    const size_t padded = bytes + 256;  // kernels may load (never use) a little past the end
    if (const cudaError_t status = cudaMalloc(&data, padded); status != cudaSuccess) {
      return Error{ErrorCode::kOutOfMemory,
                   fmt::format("{}: the driver refused {:.2f} GiB: {}", purpose, gib(bytes),
                               cudaGetErrorString(status))};
    }
    EXODE_CUDA_CHECK(cudaMemsetAsync(data, 0, padded, native_));
    allocated_ += bytes;
    return Buffer(static_cast<std::byte*>(data), bytes, this,
                  [](void* self, std::byte* p, size_t n) {
                    static_cast<CudaDevice*>(self)->allocated_ -= n;
                    cudaFree(p);
                  });
  }

  void copy_in(std::span<std::byte> device, std::span<const std::byte> host) override {
    EXODE_CHECK(device.size() >= host.size(), "copy past the end of a device buffer");
    if (host.empty()) return;
    EXODE_CUDA_CHECK(
        cudaMemcpyAsync(device.data(), host.data(), host.size(), cudaMemcpyHostToDevice, native_));
    synchronize();  // the caller may reuse its memory at once
  }
  void copy_out(std::span<std::byte> host, std::span<const std::byte> device) override {
    EXODE_CHECK(host.size() >= device.size(), "copy past the end of a host buffer");
    if (device.empty()) return;
    EXODE_CUDA_CHECK(cudaMemcpyAsync(host.data(), device.data(), device.size(),
                                     cudaMemcpyDeviceToHost, native_));
    synchronize();
  }

  Result<Buffer> allocate_host(size_t bytes, std::string_view purpose) override {
    void* data = nullptr;
    if (const cudaError_t status = cudaHostAlloc(&data, bytes + 64, cudaHostAllocDefault);
        status != cudaSuccess) {
      return Error{ErrorCode::kOutOfMemory,
                   fmt::format("{}: the driver refused {:.2f} GiB of pinned host memory: {}",
                               purpose, gib(bytes), cudaGetErrorString(status))};
    }
    std::memset(data, 0, bytes + 64);
    return Buffer(static_cast<std::byte*>(data), bytes, this,
                  [](void*, std::byte* p, size_t) { cudaFreeHost(p); });
  }
  void copy_in_async(std::span<std::byte> device, std::span<const std::byte> host) override {
    EXODE_CHECK(device.size() >= host.size(), "copy past the end of a device buffer");
    if (host.empty()) return;
    EXODE_CUDA_CHECK(
        cudaMemcpyAsync(device.data(), host.data(), host.size(), cudaMemcpyHostToDevice, native_));
  }
  void copy_out_async(std::span<std::byte> host, std::span<const std::byte> device) override {
    EXODE_CHECK(host.size() >= device.size(), "copy past the end of a host buffer");
    if (device.empty()) return;
    EXODE_CUDA_CHECK(cudaMemcpyAsync(host.data(), device.data(), device.size(),
                                     cudaMemcpyDeviceToHost, native_));
  }
  int64_t ticket() override {
    EXODE_CUDA_CHECK(cudaEventRecord(events_[next_ticket_ % kTickets], native_));
    return next_ticket_++;
  }
  void wait(int64_t ticket) override {
    EXODE_CHECK(ticket >= next_ticket_ - kTickets, "waiting for a ticket that was given again");
    EXODE_CUDA_CHECK(cudaEventSynchronize(events_[ticket % kTickets]));
  }
  std::unique_ptr<StepGraph> record(std::function<void()> body) override {
    EXODE_CUDA_CHECK(cudaStreamBeginCapture(native_, cudaStreamCaptureModeThreadLocal));
    body();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXODE_CUDA_CHECK(cudaStreamEndCapture(native_, &graph));
    EXODE_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    EXODE_CUDA_CHECK(cudaGraphDestroy(graph));
    EXODE_CUDA_CHECK(cudaGraphUpload(executable, native_));
    return std::make_unique<CudaGraph>(executable, native_);
  }
  size_t used_bytes() const override { return driver_used_bytes(); }
  std::unique_ptr<StreamClock> clock(size_t marks) override {
    return std::make_unique<CudaClock>(marks, native_);
  }

 private:
  int ordinal_;
  static constexpr int64_t kTickets = 4;
  cudaStream_t native_ = nullptr;
  std::array<cudaEvent_t, kTickets> events_{};
  int64_t next_ticket_ = 0;
  void* counters_ = nullptr;
  void* exchange_ = nullptr;
  Stream stream_;
  DeviceCaps caps_;
  bool sealed_ = false;
  std::atomic<size_t> allocated_ = 0;
};

Result<int> parse_ordinal(const std::string& name, int count) {
  if (name == "cuda") return 0;
  int ordinal = -1;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + 5, end, ordinal);
  if (error != std::errc() || rest != end || ordinal < 0 || ordinal >= count) {
    return invalid(fmt::format("--device {}: this machine has cuda:0 to cuda:{}", name, count - 1));
  }
  return ordinal;
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda_device(const DeviceOptions& options) {
  int count = 0;
  EXODE_TRY(succeeded(cudaGetDeviceCount(&count)));
  EXODE_ASSIGN(const int ordinal, parse_ordinal(options.name, count));
  EXODE_TRY(succeeded(cudaSetDevice(ordinal)));
  cudaDeviceProp properties{};
  EXODE_TRY(succeeded(cudaGetDeviceProperties(&properties, ordinal)));
  CudaGpu gpu{.name = properties.name, .major = properties.major, .minor = properties.minor};
  EXODE_TRY(succeeded(cudaMemGetInfo(&gpu.free_bytes, &gpu.total_bytes)));
  EXODE_TRY(require_usable(gpu, EXODE_CUDA_ARCHS, kMargin));
  size_t usable = gpu.free_bytes - std::min(gpu.free_bytes, kMargin);
  if (options.total_limit > 0) {
    const size_t used = gpu.total_bytes - gpu.free_bytes, taken = used + kLateReserve;
    if (taken >= options.total_limit) {
      return Error{
          ErrorCode::kOutOfMemory,
          fmt::format("the driver already reports {:.2f} GiB in use on {} (context and "
                      "other programs), and code and graphs take {:.2f} GiB more; "
                      "--gpu-memory-limit {:.2f} GiB leaves nothing: raise it",
                      gib(used), properties.name, gib(kLateReserve), gib(options.total_limit))};
    }
    usable = std::min(usable, options.total_limit - taken);
  }
  const size_t limit = options.memory_limit > 0 ? std::min(options.memory_limit, usable) : usable;
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(ordinal, properties, limit));
}

}  // namespace exode
