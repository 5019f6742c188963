// What the checks and timings of small_ops share: device memory with seeded contents, one call that
// runs an op, and the time of an op inside a CUDA graph.
#pragma once

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "device/cuda/cuda_check.h"
#include "ops/exec.h"

namespace exode::bench {

class Lab {
 public:
  Lab()
      : device_(open_device({.name = "cuda"}).value()),
        fast_(cuda_ops(device_->caps(), Numerics::kFast)),
        exact_(cuda_ops(device_->caps(), Numerics::kExact)),
        scratch_(take(size_t{1} << 30)) {}

  Device& device() { return *device_; }
  const OpTable& fast() const { return fast_; }
  const OpTable& exact() const { return exact_; }
  Buffer take(size_t bytes) { return device_->allocate(bytes, "bench").value(); }

  template <class T>
  Buffer upload(const std::vector<T>& values) {
    Buffer buffer = take(values.size() * sizeof(T) + 256);
    device_->copy_in(buffer.bytes().first(values.size() * sizeof(T)),
                     std::as_bytes(std::span(values)));
    return buffer;
  }
  template <class T>
  std::vector<T> download(const Buffer& buffer, size_t count) {
    std::vector<T> values(count);
    device_->synchronize();
    device_->copy_out(std::as_writable_bytes(std::span(values)),
                      buffer.bytes().first(count * sizeof(T)));
    device_->synchronize();
    return values;
  }
  Buffer uniform(size_t count, uint64_t seed, float low, float high) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = low + (high - low) * random_unit(seed, i);
    return upload(values);
  }

  template <class Op>
  void run(const OpTable& table, const Op& op) {
    Arena arena = Arena::over(scratch_.bytes());
    Exec(Exec::Mode::kRun, table, device_->stream(), arena)(op);
  }

  // Microseconds of body(i), from replays of a graph of `count` of them.
  template <class Body>
  double time(int count, const Body& body) {
    const auto stream = static_cast<cudaStream_t>(device_->stream().native());
    body(0);  // kernels are loaded before the capture
    EXODE_CUDA_CHECK(cudaStreamSynchronize(stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    EXODE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < count; ++i) body(i);
    EXODE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    EXODE_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t start, end;
    EXODE_CUDA_CHECK(cudaEventCreate(&start));
    EXODE_CUDA_CHECK(cudaEventCreate(&end));
    float best = 1e30f;
    for (int repetition = 0; repetition < 6; ++repetition) {
      EXODE_CUDA_CHECK(cudaEventRecord(start, stream));
      EXODE_CUDA_CHECK(cudaGraphLaunch(exec, stream));
      EXODE_CUDA_CHECK(cudaEventRecord(end, stream));
      EXODE_CUDA_CHECK(cudaEventSynchronize(end));
      float milliseconds = 0;
      EXODE_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start, end));
      best = std::min(best, milliseconds);
    }
    EXODE_CUDA_CHECK(cudaGraphExecDestroy(exec));
    EXODE_CUDA_CHECK(cudaGraphDestroy(graph));
    return 1e3 * best / count;
  }

  void check(bool passed, const std::string& what) {
    fmt::print("{:<6}{}\n", passed ? "ok" : "FAILED", what);
    failures_ += passed ? 0 : 1;
  }
  int failures() const { return failures_; }

 private:
  std::unique_ptr<Device> device_;
  OpTable fast_, exact_;
  Buffer scratch_;
  int failures_ = 0;
};

inline double nmse(const std::vector<float>& actual, const std::vector<float>& expected) {
  double error = 0, norm = 1e-30;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - expected[i];
    error += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return error / norm;
}

void time_attend(Lab& lab);
void time_gdn(Lab& lab);
void check_moe(Lab& lab);
void time_moe(Lab& lab);
void check_sample(Lab& lab);
void time_sample(Lab& lab);
void check_stream(Lab& lab);
void time_stream(Lab& lab);
void check_rows(Lab& lab);
void time_rows(Lab& lab);

}  // namespace exode::bench
