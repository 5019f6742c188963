// exode_bench_ops: CPU matmul against the read bandwidth and the multiply-add rate of the machine,
// measured in the same run.
//
//   exode_bench_ops [--quick] [--threads N] [--commit ID] [--out FILE.json]
//
// Decode must be bound by the weight stream, so the matrices are larger than any cache (those of
// --quick are not, and the output says so). A pass over a matrix is timed slice by slice and each
// slice counts with its best time over several passes: on a shared machine no whole pass is left
// alone, but every slice is, sooner or later.
#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/exec.h"
#include "ops/probe.h"

namespace {

using namespace exode;
using Json = nlohmann::ordered_json;

struct Options {
  bool quick = false;
  int32_t threads = 0;
  std::string commit, out;
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Sum over the slices of the best time of each.
template <class Body>
double best_pass(int passes, int32_t slices, const Body& body) {
  std::vector<double> best(static_cast<size_t>(slices), 1e30);
  for (int pass = 0; pass < passes; ++pass) {
    for (int32_t s = 0; s < slices; ++s) {
      const double start = seconds();
      body(s);
      double& time = best[static_cast<size_t>(s)];
      time = std::min(time, seconds() - start);
    }
  }
  double total = 0;
  for (const double time : best) total += time;
  return total;
}

// One core for each thread: a busy machine may keep both threads of a region on one core, and then
// no repetition shows what two can do.
void pin_threads(ThreadPool& pool) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  pool.run(pool.size(), [&](int32_t part, int32_t) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cores[static_cast<size_t>(part) % cores.size()], &own);
    sched_setaffinity(0, sizeof(own), &own);
  });
}

uint64_t weight_stream_bytes(const WeightView& w) {
  const auto bytes = [](const ConstTensorView& t) {
    return t.empty() ? 0 : static_cast<uint64_t>(t.shape.elements()) * dtype_bytes(t.dtype);
  };
  return bytes(w.codes) + bytes(w.scales);
}

class Bench {
 public:
  explicit Bench(const Options& o)
      : o_(o),
        device_(open_device({.name = "cpu", .threads = o.threads}).value()),
        ops_(cpu_ops(device_->caps(), Numerics::kFast)),  // what --dtype bf16 runs
        weights_(take(o.quick ? size_t{64} << 20 : size_t{1} << 30)),
        x_(take(size_t{kPrefillRows} * kCols * sizeof(float))),
        out_(take(size_t{kDecodeRowsMax} * kOutMax * sizeof(float))),
        scratch_(take(size_t{64} << 20)) {
    pin_threads(device_->stream().pool());
    auto* x = reinterpret_cast<float*>(x_.bytes().data());
    for (uint64_t i = 0; i < uint64_t{kPrefillRows} * kCols; ++i) x[i] = random_unit(1, i) - 0.5f;
    auto* w = reinterpret_cast<uint64_t*>(weights_.bytes().data());
    // Any bit pattern is a valid int4 code; as bf16, fp8 or f32 these are ordinary small numbers.
    for (size_t i = 0; i < weights_.bytes().size() / 8; ++i) {
      w[i] = (random_bits(2, i) & 0x3b3b3b3b3b3b3b3bu) | 0x3030303030303030u;
    }
  }

  Json run() {
    bandwidth_ = measure_bandwidth();
    peak_ = measure_peak();
    fmt::print("{}, {}, {} threads: reads {:.1f} GB/s ({} MiB{}), multiply-adds {:.0f} GFLOP/s\n\n",
               bench::cpu_model(), bench::instruction_set(), threads(), bandwidth_ / 1e9,
               weights_.bytes().size() >> 20, o_.quick ? ", quick: may be a cache's" : "",
               peak_ / 1e9);
    Json result{{"commit", o_.commit},
                {"machine", {{"cpu", bench::cpu_model()}, {"simd", bench::instruction_set()}}},
                {"threads", threads()},
                {"quick", o_.quick},
                {"read_gbps", bandwidth_ / 1e9},
                {"peak_gflops", peak_ / 1e9}};
    fmt::print("{:<10}{:>6}{:>10}{:>10}{:>12}{:>10}\n", "weights", "rows", "ms", "GB/s",
               "% of read", "x 1 row");
    Json& results = result["results"] = Json::array();
    for (const char* kind : {"int4", "fp8", "bf16"}) decode(kind, results);
    fmt::print("\n{:<10}{:>6}{:>10}{:>10}{:>12}\n", "weights", "rows", "ms", "GFLOP/s",
               "% of peak");
    for (const char* kind : {"int4", "fp8", "bf16"}) prefill(kind, results);
    return result;
  }

 private:
  static constexpr int32_t kCols = 5120, kDecodeRowsMax = 8, kOutMax = 1 << 19;
  static constexpr int32_t kPrefillRows = 256, kPrefillOut = 4096;
  // Weight rows of a slice: some 100 µs, and whole fp8 blocks.
  static constexpr int64_t kSliceBytes = int64_t{4} << 20;
  static constexpr int32_t kRowAlign = 128;

  Buffer take(size_t bytes) { return device_->allocate(bytes, "bench").value(); }
  int32_t threads() const { return device_->caps().multiprocessors; }
  int passes() const { return o_.quick ? 3 : 8; }

  double measure_bandwidth() {
    const std::span<const std::byte> all = weights_.bytes();
    const auto slices = static_cast<int32_t>(all.size() / kSliceBytes);
    std::vector<uint64_t> sums(static_cast<size_t>(threads()) * 8);
    const double time = best_pass(passes(), slices, [&](int32_t s) {
      const auto slice = all.subspan(static_cast<size_t>(s * kSliceBytes), kSliceBytes);
      device_->stream().pool().run(threads(), [&](int32_t part, int32_t parts) {
        const size_t lines = slice.size() / 64;
        const size_t begin = lines * static_cast<size_t>(part) / static_cast<size_t>(parts);
        const size_t end = lines * static_cast<size_t>(part + 1) / static_cast<size_t>(parts);
        sums[static_cast<size_t>(part) * 8] +=
            bench::read_all(slice.subspan(begin * 64, (end - begin) * 64));
      });
    });
    for (uint64_t s : sums) checksum_ += s;
    return static_cast<double>(slices * kSliceBytes) / time;
  }

  double measure_peak() {
    std::vector<double> flops(static_cast<size_t>(threads()) * 8);
    std::vector<float> sums(flops.size());
    const double time = best_pass(o_.quick ? 20 : 200, 1, [&](int32_t) {
      device_->stream().pool().run(threads(), [&](int32_t part, int32_t) {
        const auto at = static_cast<size_t>(part) * 8;
        sums[at] += bench::multiply_add(100'000, flops[at]);
      });
    });
    double total = 0;
    for (size_t i = 0; i < flops.size(); ++i) {
      total += flops[i];
      checksum_ += static_cast<uint64_t>(sums[i]);
    }
    return total / time;
  }

  // A matrix of the kind that fills the weight buffer; the scales sit at its end.
  WeightView weight(const std::string& kind) const {
    const std::byte* codes = weights_.bytes().data();
    const auto bytes = static_cast<int64_t>(weights_.bytes().size());
    const bool int4 = kind == "int4", bf16 = kind == "bf16";
    const int64_t row_bytes = bf16 ? 2 * kCols : int4 ? kCols / 2 : kCols;
    const int64_t scale_bytes = bf16 ? 0 : kCols / 128 * 4;
    WeightView w;
    w.cols = kCols;
    w.rows = static_cast<int32_t>(std::min<int64_t>(bytes / (row_bytes + scale_bytes), kOutMax) /
                                  kRowAlign * kRowAlign);
    if (bf16) {
      w.codes = dense_view(codes, DType::kBF16, {w.rows, kCols});
      return w;
    }
    w.group = 128;
    w.layout = int4 ? WeightLayout::kInt4Group : WeightLayout::kFp8Block;
    w.codes = dense_view(codes, int4 ? DType::kU8 : DType::kFp8E4M3,
                         {w.rows, static_cast<int32_t>(row_bytes)});
    const std::byte* scales = codes + w.rows * row_bytes;
    w.scales = dense_view(scales, DType::kF32, {int4 ? w.rows : w.rows / 128, kCols / 128});
    return w;
  }

  // Seconds for rows of x times all of w, `slice_rows` rows of w at a time.
  double time_matmul(const WeightView& w, int32_t rows, int32_t slice_rows) {
    const ConstTensorView x =
        dense_view(std::as_const(x_).bytes().data(), DType::kF32, {rows, kCols});
    const TensorView out = dense_view(out_.bytes().data(), DType::kF32, {rows, w.rows});
    const int32_t slices = (w.rows + slice_rows - 1) / slice_rows;
    return best_pass(passes(), slices, [&](int32_t s) {
      const int32_t first = s * slice_rows, count = std::min(slice_rows, w.rows - first);
      Arena arena = Arena::over(scratch_.bytes());
      Exec(Exec::Mode::kRun, ops_, device_->stream(), arena)(ops::MatMul{
          .x = x, .w = w.slice_rows(first, count), .out = out.slice_cols(first, count)});
    });
  }

  void decode(const std::string& kind, Json& results) {
    const WeightView w = weight(kind);
    const auto bytes = static_cast<double>(weight_stream_bytes(w));
    const auto per_row = static_cast<int64_t>(weight_stream_bytes(w)) / w.rows;
    const auto slice_rows = static_cast<int32_t>(kSliceBytes / per_row / kRowAlign * kRowAlign);
    double one = 0;
    for (int32_t rows : {1, 2, 4, 8}) {
      const double t = time_matmul(w, rows, slice_rows);
      if (rows == 1) one = t;
      const double share = bytes / t / bandwidth_;
      fmt::print("{:<10}{:>6}{:>10.2f}{:>10.1f}{:>12.0f}{:>10.2f}\n", kind, rows, t * 1e3,
                 bytes / t / 1e9, share * 100, t / one);
      results.push_back({{"op", "matmul"},
                         {"weights", kind},
                         {"rows", rows},
                         {"ms", t * 1e3},
                         {"gbps", bytes / t / 1e9},
                         {"of_read", share},
                         {"of_one_row", t / one}});
    }
  }

  void prefill(const std::string& kind, Json& results) {
    const int32_t rows = o_.quick ? 64 : kPrefillRows;
    const WeightView w = weight(kind).slice_rows(0, o_.quick ? 512 : kPrefillOut);
    const double t = time_matmul(w, rows, kRowAlign);
    const double rate = 2.0 * rows * w.rows * kCols / t;
    fmt::print("{:<10}{:>6}{:>10.2f}{:>10.0f}{:>12.0f}\n", kind, rows, t * 1e3, rate / 1e9,
               rate / peak_ * 100);
    results.push_back({{"op", "matmul"},
                       {"weights", kind},
                       {"rows", rows},
                       {"ms", t * 1e3},
                       {"gflops", rate / 1e9},
                       {"of_peak", rate / peak_}});
  }

  const Options o_;
  std::unique_ptr<Device> device_;
  OpTable ops_;
  Buffer weights_, x_, out_, scratch_;
  double bandwidth_ = 0, peak_ = 0;  // bytes and operations per second
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
    } else if (arg == "--commit" && value != nullptr) {
      o.commit = argv[++i];
    } else if (arg == "--out" && value != nullptr) {
      o.out = argv[++i];
    } else {
      fmt::print(stderr,
                 "usage: exode_bench_ops [--quick] [--threads N] [--commit ID] [--out FILE]\n");
      return 2;
    }
  }
  const Json result = Bench(o).run();
  if (o.out.empty()) return 0;
  std::ofstream file(o.out);
  file << result.dump(2) << "\n";
  if (!file.flush()) {
    fmt::print(stderr, "cannot write {}\n", o.out);
    return 1;
  }
  return 0;
}
