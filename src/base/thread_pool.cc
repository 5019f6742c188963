#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace exode {
namespace {

// About 30 microseconds of PAUSE: longer than the gap between two ops of a step, shorter than a
// scheduler quantum, so that an idle server does not burn a core.
constexpr int kSpins = 600;

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct ThreadPool::State {
  std::atomic<uint64_t> generation{0};
  std::atomic<int32_t> pending{0};
  std::atomic<bool> stopping{false};
  int32_t parts = 0;
  Entry entry = nullptr;
  void* context = nullptr;
  std::vector<std::thread> workers;

  void work(int32_t index) {
    uint64_t seen = 0;
    while (true) {
      uint64_t now = generation.load(std::memory_order_acquire);
      for (int i = 0; now == seen && i < kSpins; ++i) {
        cpu_relax();
        now = generation.load(std::memory_order_acquire);
      }
      if (now == seen) {
        generation.wait(seen, std::memory_order_acquire);
        continue;
      }
      seen = now;
      if (stopping.load(std::memory_order_relaxed)) return;
      if (index < parts) entry(context, index, parts);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int32_t threads) : state_(std::make_unique<State>()) {
  for (int32_t i = 1; i < threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true);
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int32_t ThreadPool::size() const { return static_cast<int32_t>(state_->workers.size()) + 1; }

int32_t ThreadPool::parts_for(int32_t count, int32_t grain) const {
  return std::clamp(count / std::max(grain, 1), 1, size());
}

void ThreadPool::run_parts(int32_t parts, Entry entry, void* context) {
  if (parts <= 1) {
    entry(context, 0, 1);
    return;
  }
  State& s = *state_;
  s.parts = parts;
  s.entry = entry;
  s.context = context;
  s.pending.store(static_cast<int32_t>(s.workers.size()), std::memory_order_relaxed);
  s.generation.fetch_add(1, std::memory_order_release);
  s.generation.notify_all();
  entry(context, 0, parts);
  for (int i = 0;; ++i) {
    const int32_t left = s.pending.load(std::memory_order_acquire);
    if (left == 0) return;
    if (i < kSpins) {
      cpu_relax();
    } else {
      s.pending.wait(left, std::memory_order_acquire);
    }
  }
}

}  // namespace exode
