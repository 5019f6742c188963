// Plans and loads with the same calls and checks that both take the same memory.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "device/device.h"
#include "weights/loader.h"

namespace exode::test {

class Loaded {
 public:
  using Build = std::function<Status(WeightLoader&)>;

  Loaded(const std::string& directory, const Build& build, LoadOptions options = {}) {
    Result<Checkpoint> opened = Checkpoint::open(directory);
    if (!opened.ok()) {
      error = opened.error().message;
      return;
    }
    checkpoint_ = std::make_unique<Checkpoint>(std::move(opened).value());
    device_ = open_device({.name = "cpu", .threads = 2}).value();
    Arena counting = Arena::counting(), host_counting = Arena::counting();
    const bool on_host = options.embedding_arena != nullptr;
    if (on_host) options.embedding_arena = &host_counting;
    WeightLoader plan(WeightLoader::Mode::kPlan, *checkpoint_, counting, *device_, options);
    if (const Status status = build(plan); !status.ok()) {
      error = status.error().message;
      return;
    }
    memory_ = device_->allocate(counting.peak_bytes(), "test weights").value();
    host_memory_ = device_->allocate(host_counting.peak_bytes(), "test embedding").value();
    Arena arena = Arena::over(memory_.bytes()), host = Arena::over(host_memory_.bytes());
    if (on_host) options.embedding_arena = &host;
    WeightLoader load(WeightLoader::Mode::kLoad, *checkpoint_, arena, *device_, options);
    if (const Status status = build(load); !status.ok()) {
      error = status.error().message;
      failed_loading = true;
      return;
    }
    load.finish();
    EXPECT_EQ(arena.peak_bytes(), counting.peak_bytes());
    EXPECT_EQ(host.peak_bytes(), host_counting.peak_bytes());
    EXPECT_EQ(load.head_report(), plan.head_report());
    head_report = load.head_report();
    device_bytes = arena.peak_bytes();
    host_bytes = host.peak_bytes();
    EXPECT_EQ(load.unused(), plan.unused());
    EXPECT_EQ(load.bytes_consumed(), plan.bytes_consumed());
    EXPECT_EQ(load.format_counts(), plan.format_counts());
    unused = load.unused();
    bytes_consumed = load.bytes_consumed();
    formats = load.format_counts();
  }

  std::string error;            // of opening, planning or loading; empty when all went well
  bool failed_loading = false;  // the error came after planning
  std::vector<std::string> unused;
  std::map<std::string, int32_t> formats;
  uint64_t bytes_consumed = 0;
  std::string head_report;
  size_t device_bytes = 0, host_bytes = 0;

 private:
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Device> device_;
  Buffer memory_, host_memory_;
};

// One linear module, loaded; `error` is set instead when that failed.
struct LoadedLinear {
  LoadedLinear(const std::string& directory, const std::string& module, int32_t rows, int32_t cols,
               const LoadOptions& options = {})
      : loaded(
            directory,
            [&](WeightLoader& loader) -> Status {
              EXODE_ASSIGN(view, loader.linear(module, rows, cols));
              return Done{};
            },
            options) {}
  WeightView view;
  Loaded loaded;
};

}  // namespace exode::test
