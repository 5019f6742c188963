#include <fmt/format.h>

#include "base/check.h"
#include "device/device.h"

namespace exode {
namespace {

class DescribedDevice final : public Device {
 public:
  DescribedDevice(Backend backend, DeviceCaps caps)
      : backend_(backend), caps_(std::move(caps)), pool_(1), stream_(&pool_) {}

  Backend backend() const override { return backend_; }
  const DeviceCaps& caps() const override { return caps_; }
  Stream& stream() override { return stream_; }
  void seal() override {}
  size_t allocated_bytes() const override { return 0; }
  size_t used_bytes() const override { return 0; }
  void synchronize() override {}

  Result<Buffer> allocate(size_t bytes, std::string_view purpose) override {
    return unsupported(
        fmt::format("{} is only described here: no {} bytes for {}", caps_.name, bytes, purpose));
  }
  Result<Buffer> allocate_host(size_t bytes, std::string_view purpose) override {
    return allocate(bytes, purpose);
  }
  void copy_in(std::span<std::byte>, std::span<const std::byte>) override { refuse(); }
  void copy_out(std::span<std::byte>, std::span<const std::byte>) override { refuse(); }
  void copy_in_async(std::span<std::byte>, std::span<const std::byte>) override { refuse(); }
  void copy_out_async(std::span<std::byte>, std::span<const std::byte>) override { refuse(); }
  int64_t ticket() override { return refuse(); }
  void wait(int64_t) override { refuse(); }
  std::unique_ptr<StepGraph> record(std::function<void()>) override {
    refuse();
    return nullptr;
  }
  std::unique_ptr<StreamClock> clock(size_t) override {
    refuse();
    return nullptr;
  }

 private:
  int64_t refuse() const {
    EXODE_CHECK(false, caps_.name + " is only described: nothing runs on it");
    return 0;
  }

  Backend backend_;
  DeviceCaps caps_;
  ThreadPool pool_;
  Stream stream_;
};

}  // namespace

std::unique_ptr<Device> make_described_device(Backend backend, DeviceCaps caps) {
  return std::make_unique<DescribedDevice>(backend, std::move(caps));
}

}  // namespace exode
