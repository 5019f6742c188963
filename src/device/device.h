// A device owns memory and executes ops. All memory is taken before seal(); afterwards allocate()
// refuses, so that nothing can fail for lack of memory while requests run.
//
//   auto device = open_device({.name = "cpu", .threads = 2});
//   auto buffer = device.value()->allocate(plan.total_bytes, "kv pool");
//   device.value()->seal();
//
// On the CPU device memory is host memory and a copy is memcpy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"

namespace exode {

enum class Backend : uint8_t { kRef, kCpu, kCuda, kCount };
std::string_view backend_name(Backend backend);

struct DeviceCaps {  // facts, not product names
  std::string name;
  int32_t multiprocessors = 1;  // CPU: worker threads
  int32_t shared_bytes_per_block = 0;
  size_t memory_bytes = 0;
  double bandwidth_gbps = 0;  // 0 = unknown
};

// Owns one allocation of a device; frees it on destruction.
class Buffer {
 public:
  using Free = void (*)(void* owner, std::byte* data, size_t bytes);
  Buffer() = default;
  Buffer(std::byte* data, size_t bytes, void* owner, Free free)
      : data_(data), bytes_(bytes), owner_(owner), free_(free) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  void* owner_ = nullptr;
  Free free_ = nullptr;
};

// Where ops run, in order. The CPU stream executes at once on its pool.
class Stream {
 public:
  explicit Stream(ThreadPool* pool) : pool_(pool) {}
  Stream(void* native, std::span<int32_t> counters, std::span<float> exchange)
      : native_(native), counters_(counters), exchange_(exchange) {}
  ThreadPool& pool() const { return *pool_; }
  void* native() const { return native_; }
  // Device words in which the blocks of a kernel count each other. Zero between kernels: who makes
  // one other than zero sets it back before the kernel ends.
  std::span<int32_t> counters() const { return counters_; }
  // Device words through which the blocks of one kernel hand each other partial sums. Between
  // kernels every word is kUnset, bits that arithmetic never makes: who reads a sum sets it back.
  std::span<float> exchange() const { return exchange_; }
  static constexpr uint32_t kUnset = 0xffffffffu;

 private:
  ThreadPool* pool_ = nullptr;
  void* native_ = nullptr;
  std::span<int32_t> counters_;
  std::span<float> exchange_;
};

// A recorded step: the same launches with the same arguments, whenever it is replayed.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  virtual void replay() = 0;  // in stream order; returns at once
};

// Times between places in the stream, for profiles. On a device with a queue the first mark comes
// late enough that everything submitted after it waits there: launching costs the times nothing.
class StreamClock {
 public:
  virtual ~StreamClock() = default;
  virtual void mark() = 0;                      // at most as often as was asked for
  virtual std::vector<double> intervals() = 0;  // seconds between marks; waits for the last one
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Backend backend() const = 0;
  virtual const DeviceCaps& caps() const = 0;
  // 64-byte aligned and zeroed. kOutOfMemory when it does not fit or after seal(); `purpose`
  // appears in the message.
  virtual Result<Buffer> allocate(size_t bytes, std::string_view purpose) = 0;
  virtual void seal() = 0;
  virtual size_t allocated_bytes() const = 0;
  virtual Stream& stream() = 0;
  virtual void copy_in(std::span<std::byte> device, std::span<const std::byte> host) = 0;
  virtual void copy_out(std::span<std::byte> host, std::span<const std::byte> device) = 0;
  virtual void synchronize() = 0;

  // Host memory for the copies that run in stream order beside the host: it must not be changed
  // (or read) before a later ticket has passed.
  virtual Result<Buffer> allocate_host(size_t bytes, std::string_view purpose) = 0;
  virtual void copy_in_async(std::span<std::byte> device, std::span<const std::byte> host) = 0;
  virtual void copy_out_async(std::span<std::byte> host, std::span<const std::byte> device) = 0;
  // A place in the stream, and a wait until everything before it is done. The last two count.
  virtual int64_t ticket() = 0;
  virtual void wait(int64_t ticket) = 0;
  // Records what `body` launches, without running it. On the CPU a replay calls `body`.
  virtual std::unique_ptr<StepGraph> record(std::function<void()> body) = 0;

  // In use now. CUDA: as the driver reports it for the device, other programs included. CPU: the
  // resident pages of this process.
  virtual size_t used_bytes() const = 0;
  virtual std::unique_ptr<StreamClock> clock(size_t marks) = 0;
};

struct DeviceOptions {
  std::string name = "cpu";  // "cpu", "cuda", "cuda:N"
  int32_t threads = 0;       // CPU only; 0 = every core the process may use
  size_t memory_limit = 0;   // bytes of allocations; 0 = what the device has
  // CUDA: bytes the driver may report as used, with the context and what other programs hold; 0 =
  // what the device has.
  size_t total_limit = 0;
};

// What the driver, the context, code, graphs and the stream's own buffers take beside allocations.
inline constexpr size_t kCudaReserve = size_t{768} << 20;
Result<std::unique_ptr<Device>> open_device(const DeviceOptions& options);

// One per backend; the CUDA one is a refusal with instructions in builds without CUDA.
Result<std::unique_ptr<Device>> open_cpu_device(const DeviceOptions& options);
Result<std::unique_ptr<Device>> open_cuda_device(const DeviceOptions& options);

// Answers questions about a device that need not be there, for plans. It allocates nothing.
std::unique_ptr<Device> make_described_device(Backend backend, DeviceCaps caps);

}  // namespace exode
