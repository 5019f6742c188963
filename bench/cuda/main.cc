// exode_bench_cuda: int4 matmul of the Qwen3.6-27B shapes against the bandwidth of the same run.
//
// Weights rotate through a buffer far larger than the L2 cache. Bandwidth is that of adding two
// long vectors (two reads and a write). Times are of many launches in a row, launch gaps included.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/rng.h"
#include "ops/exec.h"

namespace {

using namespace exode;

struct Shape {
  const char* name;
  int32_t outputs, inputs;
};
constexpr Shape kShapes[] = {{"gate_up", 34816, 5120},
                             {"gdn qkv+z", 16384, 5120},
                             {"attention qkv", 14336, 5120},
                             {"down", 5120, 17408},
                             {"out", 5120, 6144}};
constexpr size_t kWeightBytes = size_t{2} << 30;
constexpr int32_t kRowsMax = 512;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Bench {
 public:
  Bench()
      : device_(open_device({.name = "cuda"}).value()),
        ops_(cuda_ops(device_->caps(), Numerics::kFast)),
        weights_(take(kWeightBytes)),
        scales_(take(size_t{64} << 20)),
        x_(take(sizeof(float) * kRowsMax * 17408)),
        out_(take(sizeof(float) * kRowsMax * 34816)),
        scratch_(take(size_t{256} << 20)) {
    fill(weights_, [](uint64_t i) { return static_cast<uint32_t>(random_bits(1, i)); });
    fill(scales_, [](uint64_t i) { return std::bit_cast<uint32_t>(0.01f * random_unit(2, i)); });
    fill(x_, [](uint64_t i) { return std::bit_cast<uint32_t>(random_unit(3, i) - 0.5f); });
  }

  void run() {
    const double bandwidth = stream_bandwidth();
    fmt::print("{}, streaming {:.0f} GB/s\n", device_->caps().name, bandwidth / 1e9);
    fmt::print("{:<15}{:>6}{:>10}{:>10}{:>12}{:>10}\n", "matrix", "rows", "us", "GB/s",
               "% of stream", "TFLOP/s");
    for (const Shape& shape : kShapes) {
      for (int32_t rows : {1, 2, 4, 8, 16, 32, 512}) {
        const double bytes = shape.outputs * (shape.inputs / 2.0 + shape.inputs / 32.0);
        const double t = time_matmul(shape, rows);
        fmt::print("{:<15}{:>6}{:>10.1f}{:>10.0f}{:>12.0f}{:>10.1f}\n", shape.name, rows, t * 1e6,
                   bytes / t / 1e9, 100 * bytes / t / bandwidth,
                   2.0 * rows * shape.outputs * shape.inputs / t / 1e12);
      }
    }
  }

 private:
  Buffer take(size_t bytes) { return device_->allocate(bytes, "bench").value(); }

  template <class Value>
  void fill(const Buffer& buffer, const Value& value) {
    std::vector<uint32_t> host(std::min<size_t>(buffer.bytes().size() / 4, 16 << 20));
    for (size_t i = 0; i < host.size(); ++i) host[i] = value(i);
    const auto bytes = std::as_bytes(std::span(host));
    for (size_t at = 0; at < buffer.bytes().size(); at += bytes.size()) {
      const size_t n = std::min(bytes.size(), buffer.bytes().size() - at);
      device_->copy_in(buffer.bytes().subspan(at, n), bytes.first(n));
    }
  }

  template <class Op>
  void launch(const Op& op) {
    Arena arena = Arena::over(scratch_.bytes());
    Exec(Exec::Mode::kRun, ops_, device_->stream(), arena)(op);
  }

  template <class Body>
  double per_launch(int launches, const Body& body) {
    double best = 1e30;
    for (int repetition = 0; repetition < 4; ++repetition) {
      device_->synchronize();
      const double start = seconds();
      for (int i = 0; i < launches; ++i) body(i);
      device_->synchronize();
      best = std::min(best, (seconds() - start) / launches);
    }
    return best;
  }

  double stream_bandwidth() {
    constexpr int32_t kRows = 4096, kWidth = 32768;  // 512 MiB each
    const auto view = [&](size_t offset) {
      return dense_view(weights_.bytes().data() + offset, DType::kF32, {kRows, kWidth});
    };
    const double bytes = 3.0 * kRows * kWidth * sizeof(float);
    const double t =
        per_launch(5, [&](int) { launch(ops::Add{.x = view(size_t{1} << 30), .delta = view(0)}); });
    fill(weights_, [](uint64_t i) { return static_cast<uint32_t>(random_bits(1, i)); });
    return bytes / t;
  }

  double time_matmul(const Shape& shape, int32_t rows) {
    const int64_t matrix = int64_t{shape.outputs} * shape.inputs / 2;
    const auto copies = static_cast<int>(static_cast<int64_t>(kWeightBytes) / matrix);
    return per_launch(rows > 32 ? 4 : 2 * copies, [&](int i) {
      WeightView w;
      w.layout = WeightLayout::kInt4Group;
      w.rows = shape.outputs;
      w.cols = shape.inputs;
      w.group = 128;
      const std::byte* codes = weights_.bytes().data() + i % copies * matrix;
      w.codes = dense_view(codes, DType::kU8, {w.rows, w.cols / 2});
      w.scales =
          dense_view(std::as_const(scales_).bytes().data(), DType::kF32, {w.rows, w.cols / 128});
      launch(ops::MatMul{
          .x = dense_view(std::as_const(x_).bytes().data(), DType::kF32, {rows, shape.inputs}),
          .w = w,
          .out = dense_view(out_.bytes().data(), DType::kF32, {rows, w.rows})});
    });
  }

  std::unique_ptr<Device> device_;
  OpTable ops_;
  Buffer weights_, scales_, x_, out_, scratch_;
};

}  // namespace

int main() {
  Bench().run();
  return 0;
}
