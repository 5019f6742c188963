// Runs an op with host tensors on a device: copies of its tensors lie in device memory between
// guards, and what the op may write is copied back. Fails the test when the op wrote outside of its
// tensors, into its inputs, or left the stream's counters in disorder.
//
//   DeviceRun run(device, memory, "matmul");
//   MatMul placed = run.place(op);        // the same op on device memory
//   ...launch placed, with scratch from run.scratch(bytes)
//   run.finish();
#pragma once

#include <string>
#include <vector>

#include "kv/kv.h"
#include "ops/fields.h"
#include "ops/target.h"

namespace exode::testing {

struct DeviceMemory {  // kept between ops; grows
  Buffer tensors, scratch;
};

class DeviceRun {
 public:
  DeviceRun(Device& device, DeviceMemory& memory, std::string op)
      : device_(device), memory_(memory), op_(std::move(op)) {}

  template <class Op>
  Op place(const Op& op) {
    Op placed = op;
    visit(placed, [this](auto& view) { note(view); });
    upload();
    visit(placed, [this](auto& view) { move(view); });
    return placed;
  }
  std::span<std::byte> scratch(size_t bytes);
  void finish();

 private:
  struct Region {  // host memory that views of the op share
    std::byte* host;
    size_t bytes;
    bool written;
    std::byte* device = nullptr;
    size_t at = 0;  // in image_
  };
  static constexpr size_t kGuard = 256, kAlign = 256;

  // Calls f on every tensor, and on every cache because its memory is not a tensor.
  template <class T, class F>
  static void visit(T& x, const F& f) {
    if constexpr (std::is_same_v<T, KvView>) {
      f(x);
      f(x.block_table);
    } else if constexpr (std::is_same_v<T, TensorView> || std::is_same_v<T, ConstTensorView>) {
      f(x);
    } else if constexpr (std::is_aggregate_v<T>) {
      std::apply([&](auto&... field) { (visit(field, f), ...); }, fields_of(x));
    }
  }
  static size_t bytes_of(const ConstTensorView& t) {
    if (t.empty() || t.shape.elements() == 0) return 0;
    return static_cast<size_t>(((t.rows() - 1) * t.row_stride + t.cols()) * t.bytes_per_element());
  }
  static size_t bytes_of(const KvView& cache);

  void note(const TensorView& t) { note(t.data, bytes_of(t), true); }
  void note(const ConstTensorView& t) { note(const_cast<std::byte*>(t.data), bytes_of(t), false); }
  void note(const KvView& cache) { note(cache.base, bytes_of(cache), true); }
  void note(std::byte* host, size_t bytes, bool written) {
    if (bytes > 0) regions_.push_back({host, bytes, written});
  }
  void move(TensorView& t) { t.data = on_device(t.data); }
  void move(ConstTensorView& t) { t.data = on_device(t.data); }
  void move(KvView& cache) { cache.base = on_device(cache.base); }
  std::byte* on_device(const std::byte* host) const;

  void merge_regions();
  void upload();
  void upload_isolated();
  std::vector<std::byte> download();
  void check_guards(std::vector<std::byte> image);

  Device& device_;
  DeviceMemory& memory_;
  std::string op_;
  std::vector<Region> regions_;
  std::vector<std::byte> image_;  // regions between guards, as uploaded
  std::vector<Buffer> isolated_;  // one a region
  std::span<std::byte> scratch_guard_;
};

}  // namespace exode::testing
