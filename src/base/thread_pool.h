// A fixed set of workers that split index ranges. The calling thread takes part, so a pool of
// one thread runs everything inline. One caller at a time (the engine thread, or the loader).
//
//   pool.parallel_for(rows, [&](int32_t begin, int32_t end) { ... });
//
// Workers spin shortly before they sleep: a decode step is hundreds of short regions.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace exode {

class ThreadPool {
 public:
  explicit ThreadPool(int32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t size() const;

  // Calls body(part, parts) once for every part in [0, parts), parts <= size(); returns when all
  // are done. The assignment of parts to threads is fixed, so results do not depend on timing.
  template <class Body>
  void run(int32_t parts, Body&& body) {
    run_parts(
        parts,
        [](void* context, int32_t part, int32_t count) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(part, count);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Splits [0, count) into at most size() contiguous ranges of at least `grain` items.
  template <class Body>
  void parallel_for(int32_t count, int32_t grain, Body&& body) {
    const int32_t parts = parts_for(count, grain);
    run(parts, [&](int32_t part, int32_t total) {
      const auto begin = static_cast<int32_t>(int64_t{count} * part / total);
      const auto end = static_cast<int32_t>(int64_t{count} * (part + 1) / total);
      if (begin < end) body(begin, end);
    });
  }

 private:
  using Entry = void (*)(void* context, int32_t part, int32_t parts);
  void run_parts(int32_t parts, Entry entry, void* context);
  int32_t parts_for(int32_t count, int32_t grain) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace exode
