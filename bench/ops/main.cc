// exode_bench_ops: CPU matmul against the read bandwidth measured in the same run.
//
//   exode_bench_ops [--quick] [--threads N] [--out FILE.json]
//
// Decode rows must be bound by the weight stream, so the matrices are larger than any cache (the
// quick form is not, and says so). Every figure is the best of several repetitions.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/exec.h"

namespace {

using namespace exode;
using Json = nlohmann::ordered_json;

struct Options {
  bool quick = false;
  int32_t threads = 0;
  std::string out;
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Body>
double best_seconds(int repetitions, const Body& body) {
  double best = 1e30;
  for (int i = 0; i < repetitions; ++i) {
    const double start = seconds();
    body();
    best = std::min(best, seconds() - start);
  }
  return best;
}

class Bench {
 public:
  explicit Bench(const Options& o)
      : o_(o),
        device_(open_device({.name = "cpu", .threads = o.threads}).value()),
        ops_(cpu_ops(device_->caps())),
        weights_(take(o.quick ? size_t{64} << 20 : size_t{1} << 30)),
        x_(take(kRowsMax * kCols * sizeof(float))),
        out_(take(size_t{kRowsMax} * kOutMax * sizeof(float))),
        scratch_(take(size_t{64} << 20)) {
    auto* x = reinterpret_cast<float*>(x_.bytes().data());
    for (uint64_t i = 0; i < kRowsMax * kCols; ++i) x[i] = random_unit(1, i) - 0.5f;
    auto* w = reinterpret_cast<uint64_t*>(weights_.bytes().data());
    // Any bit pattern is a valid int4 code; as bf16, fp8 or f32 these are ordinary small numbers.
    for (size_t i = 0; i < weights_.bytes().size() / 8; ++i) {
      w[i] = (random_bits(2, i) & 0x3b3b3b3b3b3b3b3bu) | 0x3030303030303030u;
    }
  }

  Json run() {
    bandwidth_ = measure_bandwidth();
    fmt::print("threads {}, read bandwidth {:.1f} GB/s over {} MiB{}\n\n",
               device_->caps().multiprocessors, bandwidth_ / 1e9, weights_.bytes().size() >> 20,
               o_.quick ? " (quick: may be a cache's)" : "");
    fmt::print("{:<10}{:>6}{:>10}{:>10}{:>12}{:>10}\n", "weights", "rows", "ms", "GB/s",
               "% of read", "x 1 row");
    Json result{{"threads", device_->caps().multiprocessors},
                {"read_gbps", bandwidth_ / 1e9},
                {"quick", o_.quick}};
    result["matmul"] = Json::array();
    for (const char* kind : {"int4", "fp8", "bf16"}) decode_rows(kind, result["matmul"]);
    result["prefill"] = prefill();
    return result;
  }

 private:
  static constexpr int32_t kCols = 5120, kRowsMax = 64, kOutMax = 1 << 19;

  Buffer take(size_t bytes) { return device_->allocate(bytes, "bench").value(); }

  // Each thread sums its part; the result is kept so that the loop stays.
  double measure_bandwidth() {
    const auto* data = reinterpret_cast<const uint64_t*>(weights_.bytes().data());
    const size_t count = weights_.bytes().size() / 8 / 64 * 64;
    std::vector<uint64_t> sums(static_cast<size_t>(device_->stream().pool().size()) * 8);
    const double best = best_seconds(8, [&] {
      device_->stream().pool().run(
          device_->stream().pool().size(), [&](int32_t part, int32_t parts) {
            const size_t begin =
                count / 64 * static_cast<size_t>(part) / static_cast<size_t>(parts) * 64;
            const size_t end =
                count / 64 * static_cast<size_t>(part + 1) / static_cast<size_t>(parts) * 64;
            uint64_t lanes[8] = {};
            for (size_t i = begin; i < end; i += 8) {
              for (size_t j = 0; j < 8; ++j) lanes[j] += data[i + j];
            }
            for (size_t j = 0; j < 8; ++j) sums[static_cast<size_t>(part) * 8 + j] += lanes[j];
          });
    });
    for (uint64_t s : sums) checksum_ += s;
    return static_cast<double>(count * 8) / best;
  }

  // A matrix of the kind that fills the weight buffer; int4 scales sit at its end.
  WeightView weight(const std::string& kind) const {
    const auto* codes = weights_.bytes().data();
    const auto bytes = static_cast<int64_t>(weights_.bytes().size());
    WeightView w;
    w.cols = kCols;
    if (kind == "bf16") {
      w.rows = static_cast<int32_t>(std::min<int64_t>(bytes / (2 * kCols), kOutMax));
      w.codes = dense_view(codes, DType::kBF16, {w.rows, kCols});
      return w;
    }
    w.group = 128;
    const bool int4 = kind == "int4";
    const int64_t row_bytes = int4 ? kCols / 2 : kCols, scale_bytes = kCols / 128 * 4;
    w.rows = static_cast<int32_t>(std::min<int64_t>(bytes / (row_bytes + scale_bytes), kOutMax) /
                                  128 * 128);
    w.layout = int4 ? WeightLayout::kInt4Group : WeightLayout::kFp8Block;
    w.codes = dense_view(codes, int4 ? DType::kU8 : DType::kFp8E4M3,
                         {w.rows, static_cast<int32_t>(row_bytes)});
    const auto* scales = codes + w.rows * row_bytes;
    w.scales = dense_view(scales, DType::kF32, {int4 ? w.rows : w.rows / 128, kCols / 128});
    return w;
  }

  double time_matmul(const WeightView& w, int32_t rows, int repetitions) {
    const ops::MatMul op{
        .x = dense_view(std::as_const(x_).bytes().data(), DType::kF32, {rows, kCols}),
        .w = w,
        .out = dense_view(out_.bytes().data(), DType::kF32, {rows, w.rows})};
    return best_seconds(repetitions, [&] {
      Arena arena = Arena::over(scratch_.bytes());
      Exec(Exec::Mode::kRun, ops_, device_->stream(), arena)(op);
    });
  }

  void decode_rows(const std::string& kind, Json& results) {
    const WeightView w = weight(kind);
    const double bytes = static_cast<double>(w.codes.shape.elements()) *
                             static_cast<double>(dtype_bytes(w.codes.dtype)) +
                         static_cast<double>(w.scales.empty() ? 0 : w.scales.shape.elements() * 4);
    double one = 0;
    for (int32_t rows : {1, 2, 4, 8}) {
      const double t = time_matmul(w, rows, 6);
      if (rows == 1) one = t;
      const double share = bytes / t / bandwidth_;
      fmt::print("{:<10}{:>6}{:>10.2f}{:>10.1f}{:>12.0f}{:>10.2f}\n", kind, rows, t * 1e3,
                 bytes / t / 1e9, share * 100, t / one);
      results.push_back({{"weights", kind},
                         {"rows", rows},
                         {"ms", t * 1e3},
                         {"gbps", bytes / t / 1e9},
                         {"of_read", share},
                         {"of_one_row", t / one}});
    }
  }

  Json prefill() {
    Json results = Json::array();
    for (const char* kind : {"int4", "bf16"}) {
      WeightView w = weight(kind).slice_rows(0, 4096);
      const double t = time_matmul(w, kRowsMax, 4);
      const double gflops = 2.0 * kRowsMax * w.rows * kCols / t / 1e9;
      fmt::print("{:<10}{:>6} rows of prefill: {:.0f} GFLOP/s\n", kind, kRowsMax, gflops);
      results.push_back({{"weights", kind}, {"rows", kRowsMax}, {"gflops", gflops}});
    }
    return results;
  }

  const Options o_;
  std::unique_ptr<Device> device_;
  OpTable ops_;
  Buffer weights_, x_, out_, scratch_;
  double bandwidth_ = 0;
  uint64_t checksum_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (arg == "--quick") {
      o.quick = true;
    } else if (arg == "--threads" && value != nullptr) {
      o.threads = std::stoi(argv[++i]);
    } else if (arg == "--out" && value != nullptr) {
      o.out = argv[++i];
    } else {
      fmt::print(stderr, "usage: exode_bench_ops [--quick] [--threads N] [--out FILE.json]\n");
      return 2;
    }
  }
  const Json result = Bench(o).run();
  if (!o.out.empty()) std::ofstream(o.out) << result.dump(2) << "\n";
  return 0;
}
