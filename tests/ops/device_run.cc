#include "ops/device_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace exode::testing {
namespace {

constexpr std::byte kGuardByte{0xff};  // as floats of any type: NaN

size_t align_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

std::byte* aligned(std::byte* p, size_t step) {
  return reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uintptr_t>(p), step));
}

bool all_equal(std::span<const std::byte> bytes, std::byte value) {
  return bytes.empty() ||
         (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

std::vector<std::byte> words_of(Device& device, const void* data, size_t bytes) {
  std::vector<std::byte> host(bytes);
  device.copy_out(host, {static_cast<const std::byte*>(data), bytes});
  return host;
}

}  // namespace

Target& target() {
  static Target instance;
  return instance;
}

bool counters_are_zero(Device& device) {
  const std::span<int32_t> counters = device.stream().counters();
  return all_equal(words_of(device, counters.data(), counters.size_bytes()), std::byte{0});
}

bool exchange_is_unset(Device& device) {
  const std::span<float> exchange = device.stream().exchange();
  return all_equal(words_of(device, exchange.data(), exchange.size_bytes()),
                   std::byte{Stream::kUnset & 0xff});
}

// Up to the last block that the table names.
size_t DeviceRun::bytes_of(const KvView& cache) {
  const ConstTensorView& table = cache.block_table;
  int32_t last = -1;
  for (int32_t s = 0; s < table.rows(); ++s) {
    const int32_t* row = table.row<int32_t>(s);
    for (int32_t b = 0; b < table.cols(); ++b) last = std::max(last, row[b]);
  }
  return static_cast<size_t>(cache.block_stride) * static_cast<size_t>(last + 1);
}

std::byte* DeviceRun::on_device(const std::byte* host) const {
  for (const Region& r : regions_) {
    if (host >= r.host && host < r.host + r.bytes) return r.device + (host - r.host);
  }
  return nullptr;  // an empty tensor
}

void DeviceRun::merge_regions() {
  std::sort(regions_.begin(), regions_.end(),
            [](const Region& a, const Region& b) { return a.host < b.host; });
  std::vector<Region> merged;
  for (const Region& r : regions_) {
    if (merged.empty() || r.host >= merged.back().host + merged.back().bytes) {
      merged.push_back(r);
      continue;
    }
    Region& before = merged.back();
    before.bytes = std::max(before.bytes, static_cast<size_t>(r.host + r.bytes - before.host));
    before.written = before.written || r.written;
  }
  regions_ = std::move(merged);
}

// Addresses keep their alignment: kernels choose by it.
void DeviceRun::upload() {
  merge_regions();
  size_t end = kGuard;
  for (Region& r : regions_) {
    r.at = align_up(end, kAlign) + reinterpret_cast<uintptr_t>(r.host) % kAlign;
    end = r.at + r.bytes + kGuard;
  }
  image_.assign(end, kGuardByte);
  for (const Region& r : regions_) std::memcpy(image_.data() + r.at, r.host, r.bytes);
  if (target().isolated) return upload_isolated();
  if (memory_.tensors.bytes().size() < end + kAlign) {
    memory_.tensors = device_.allocate(2 * end + kAlign, "tensors of an op test").value();
  }
  std::byte* base = aligned(memory_.tensors.bytes().data(), kAlign);
  device_.copy_in({base, end}, image_);
  for (Region& r : regions_) r.device = base + r.at;
}

void DeviceRun::upload_isolated() {
  for (Region& r : regions_) {
    const size_t offset = r.at % kAlign;
    isolated_.push_back(device_.allocate(r.bytes + offset, "tensor of an op test").value());
    r.device = isolated_.back().bytes().data() + offset;
    device_.copy_in({r.device, r.bytes}, {image_.data() + r.at, r.bytes});
  }
}

// New scratch is NaN; later ops find what earlier ones left, as in the engine.
std::span<std::byte> DeviceRun::scratch(size_t bytes) {
  if (memory_.scratch.bytes().size() < bytes + kGuard + kAlign) {
    memory_.scratch = device_.allocate(bytes + kGuard + kAlign, "scratch of an op test").value();
    const std::vector<std::byte> fill(memory_.scratch.bytes().size(), kGuardByte);
    device_.copy_in(memory_.scratch.bytes(), fill);
  }
  std::byte* base = aligned(memory_.scratch.bytes().data(), kAlign);
  scratch_guard_ = {base + bytes, kGuard};
  device_.copy_in(scratch_guard_, std::vector<std::byte>(kGuard, kGuardByte));
  return {base, bytes};
}

std::vector<std::byte> DeviceRun::download() {
  std::vector<std::byte> after(image_.size(), kGuardByte);
  if (!target().isolated) {
    device_.copy_out(after, {regions_.empty() ? nullptr : regions_[0].device - regions_[0].at,
                             regions_.empty() ? 0 : after.size()});
    return after;
  }
  for (const Region& r : regions_) {
    device_.copy_out({after.data() + r.at, r.bytes}, {r.device, r.bytes});
  }
  return after;
}

void DeviceRun::finish() {
  device_.synchronize();
  const std::vector<std::byte> after = download();
  for (const Region& r : regions_) {
    if (r.written) {
      std::memcpy(r.host, after.data() + r.at, r.bytes);
    } else if (std::memcmp(after.data() + r.at, image_.data() + r.at, r.bytes) != 0) {
      ADD_FAILURE() << op_ << " wrote into an input";
    }
  }
  check_guards(after);
  std::vector<std::byte> guard(scratch_guard_.size());
  device_.copy_out(guard, scratch_guard_);
  if (!all_equal(guard, kGuardByte)) ADD_FAILURE() << op_ << " wrote past its scratch memory";
  if (!counters_are_zero(device_)) ADD_FAILURE() << op_ << " left counters other than zero";
}

void DeviceRun::check_guards(std::vector<std::byte> image) {
  for (const Region& r : regions_) std::memset(image.data() + r.at, 0xff, r.bytes);
  if (!all_equal(image, kGuardByte)) ADD_FAILURE() << op_ << " wrote outside of its tensors";
}

}  // namespace exode::testing
