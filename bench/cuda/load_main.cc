// exode_bench_load FOLDER: loads every int4 module and the head of a checkpoint onto the GPU, says
// how fast, and compares the bytes with those that a load into host memory gives. Exits non-zero
// when they differ.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "weights/loader.h"

namespace {

using namespace exode;

constexpr int32_t kStrip = 32;

Status load_all(WeightLoader& loader, const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const size_t end = name.rfind(".qweight");
    if (end == std::string::npos || name.size() != end + 8) continue;
    const auto cols = static_cast<int32_t>(tensor.shape[0] * 8);
    EXODE_TRY(loader.linear(name.substr(0, end), static_cast<int32_t>(tensor.shape[1]), cols));
  }
  const RawTensor* head = checkpoint.find("lm_head.weight");
  if (head == nullptr) return Done{};
  EXODE_TRY(loader.head("lm_head", static_cast<int32_t>(head->shape[0]),
                        static_cast<int32_t>(head->shape[1])));
  return Done{};
}

struct Loaded {
  std::unique_ptr<Device> device;
  Buffer memory;
};

Result<Loaded> load(const Checkpoint& checkpoint, const char* device_name, HeadFormat head) {
  Loaded out;
  EXODE_ASSIGN(out.device, open_device({.name = device_name}));
  const LoadOptions options{.strip = kStrip, .head = head};
  Arena counting = Arena::counting();
  WeightLoader plan(WeightLoader::Mode::kPlan, checkpoint, counting, *out.device, options);
  EXODE_TRY(load_all(plan, checkpoint));
  EXODE_ASSIGN(out.memory, out.device->allocate(counting.peak_bytes(), "weights"));
  for (int round = 0; round < 2; ++round) {
    Arena arena = Arena::over(out.memory.bytes());
    const auto start = std::chrono::steady_clock::now();
    WeightLoader loader(WeightLoader::Mode::kLoad, checkpoint, arena, *out.device, options);
    EXODE_TRY(load_all(loader, checkpoint));
    loader.finish();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    fmt::print("{}: {:.2f} GB of files in {:.2f} s, {:.2f} GB/s; head {}\n", device_name,
               static_cast<double>(loader.bytes_consumed()) / 1e9, seconds,
               static_cast<double>(loader.bytes_consumed()) / 1e9 / seconds, loader.head_report());
  }
  return out;
}

Result<bool> run(const char* folder) {
  EXODE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder));
  bool same = true;
  for (const HeadFormat head : {HeadFormat::kStored, HeadFormat::kInt8, HeadFormat::kInt4}) {
    EXODE_ASSIGN(const Loaded gpu, load(checkpoint, "cuda", head));
    EXODE_ASSIGN(const Loaded host, load(checkpoint, "cpu", head));
    std::vector<std::byte> bytes(gpu.memory.bytes().size());
    gpu.device->copy_out(bytes, gpu.memory.bytes());
    const bool equal = std::memcmp(bytes.data(), host.memory.bytes().data(), bytes.size()) == 0;
    fmt::print("{}{:.2f} GB are the same on both\n", equal ? "ok: " : "FAILED: not ",
               static_cast<double>(bytes.size()) / 1e9);
    same = same && equal;
  }
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: exode_bench_load FOLDER\n");
    return 2;
  }
  const auto same = run(argv[1]);
  if (!same.ok()) fmt::print(stderr, "{}\n", same.error().message);
  return same.ok() && same.value() ? 0 : 1;
}
