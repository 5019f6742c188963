#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>

#include "device/device.h"

namespace exode {
namespace {

int32_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

size_t physical_memory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
}

constexpr size_t kHugePage = size_t{2} << 20;

class CalledGraph final : public StepGraph {
 public:
  explicit CalledGraph(std::function<void()> body) : body_(std::move(body)) {}
  void replay() override { body_(); }

 private:
  std::function<void()> body_;
};

class CpuClock final : public StreamClock {
 public:
  void mark() override { marks_.push_back(std::chrono::steady_clock::now()); }
  std::vector<double> intervals() override {
    std::vector<double> seconds;
    for (size_t i = 1; i < marks_.size(); ++i) {
      seconds.push_back(std::chrono::duration<double>(marks_[i] - marks_[i - 1]).count());
    }
    return seconds;
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options)
      : pool_(options.threads > 0 ? options.threads : usable_cores()), stream_(&pool_) {
    caps_.name = "cpu";
    caps_.multiprocessors = pool_.size();
    caps_.memory_bytes = options.memory_limit > 0 ? options.memory_limit : physical_memory();
  }

  Backend backend() const override { return Backend::kCpu; }
  const DeviceCaps& caps() const override { return caps_; }
  Stream& stream() override { return stream_; }
  void seal() override { sealed_ = true; }
  size_t allocated_bytes() const override { return allocated_; }
  void synchronize() override {}

  Result<Buffer> allocate(size_t bytes, std::string_view purpose) override {
    if (sealed_) {
      return Error{ErrorCode::kOutOfMemory,
                   fmt::format("memory is sealed: {} ({} bytes) was not planned", purpose, bytes)};
    }
    if (bytes > caps_.memory_bytes - std::min(allocated_.load(), caps_.memory_bytes)) {
      return Error{ErrorCode::kOutOfMemory,
                   fmt::format("{} needs {:.2f} GiB, {:.2f} of {:.2f} GiB are taken", purpose,
                               gib(bytes), gib(allocated_), gib(caps_.memory_bytes))};
    }
    // Anonymous pages are zero and cost nothing until touched. One spare line: kernels may load
    // (never use) a little past the end.
    const size_t mapped = bytes + 64;
    void* data =
        ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return Error{ErrorCode::kOutOfMemory,
                   fmt::format("{}: the system refused {:.2f} GiB", purpose, gib(bytes))};
    }
    // Weights are read through many short streams: with small pages their address translation
    // costs as much as the reads. A hint, so a refusal is no error.
    if (mapped >= kHugePage) ::madvise(data, mapped, MADV_HUGEPAGE);
    allocated_ += bytes;
    return Buffer(static_cast<std::byte*>(data), bytes, this,
                  [](void* self, std::byte* p, size_t n) {
                    static_cast<CpuDevice*>(self)->allocated_ -= n;
                    ::munmap(p, n + 64);
                  });
  }

  void copy_in(std::span<std::byte> device, std::span<const std::byte> host) override {
    EXODE_CHECK(device.size() >= host.size(), "copy past the end of a device buffer");
    if (!host.empty()) std::memcpy(device.data(), host.data(), host.size());
  }
  void copy_out(std::span<std::byte> host, std::span<const std::byte> device) override {
    EXODE_CHECK(host.size() >= device.size(), "copy past the end of a host buffer");
    if (!device.empty()) std::memcpy(host.data(), device.data(), device.size());
  }

  Result<Buffer> allocate_host(size_t bytes, std::string_view purpose) override {
    return allocate(bytes, purpose);
  }
  void copy_in_async(std::span<std::byte> device, std::span<const std::byte> host) override {
    copy_in(device, host);
  }
  void copy_out_async(std::span<std::byte> host, std::span<const std::byte> device) override {
    copy_out(host, device);
  }
  int64_t ticket() override { return 0; }
  void wait(int64_t) override {}
  std::unique_ptr<StepGraph> record(std::function<void()> body) override {
    return std::make_unique<CalledGraph>(std::move(body));
  }
  size_t used_bytes() const override {
    std::ifstream in("/proc/self/statm");
    size_t all = 0, resident = 0;
    in >> all >> resident;
    return resident * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  }
  std::unique_ptr<StreamClock> clock(size_t) override { return std::make_unique<CpuClock>(); }

 private:
  static double gib(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

  ThreadPool pool_;
  Stream stream_;
  DeviceCaps caps_;
  bool sealed_ = false;
  std::atomic<size_t> allocated_ = 0;
};

}  // namespace

Result<std::unique_ptr<Device>> open_cpu_device(const DeviceOptions& options) {
  if (options.total_limit > 0) {
    return invalid("--gpu-memory-limit needs --device cuda; the CPU has --memory-limit");
  }
  if (options.threads < 0 || options.threads > 1024) {
    return invalid(fmt::format("threads = {} is outside 1…1024", options.threads));
  }
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(options));
}

}  // namespace exode
