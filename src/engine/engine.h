// The engine proper: queue, admission, step loop, delivery. Created by Engine::create with the
// real stepper, and by tests with a fake one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "engine/api.h"
#include "engine/stepper.h"
#include "kv/pool.h"
#include "state/pool.h"

namespace exode {

// What admission hands out; owned by whoever owns the stepper. Null = the model needs none.
struct EnginePools {
  KvPool* kv = nullptr;
  StatePool* states = nullptr;
};

class EngineLoop {
 public:
  EngineLoop(const EngineConfig& config, const EngineFacts& facts, Stepper& stepper,
             EnginePools pools);
  ~EngineLoop();

  void start();
  void stop();
  Result<RequestId> submit(Request request, Engine::Sink sink);
  void cancel(RequestId request);
  EngineStats stats() const;

  // One turn of the loop: take new requests and cancels, admit, step, deliver. Returns whether
  // anything is left to do. Called by the engine thread; by tests directly.
  bool turn();

 private:
  Status check(const Request& request) const;
  void run();
  void take_arrivals();
  void drop_cancelled();
  void admit();
  bool reserve(Sequence& sequence);
  void release(Sequence& sequence);
  void run_step();
  bool must_collect_first() const;
  void submit_step(std::vector<Slice> slices);
  void collect_step();
  void remove_finished();
  void accept(const Slice& slice, TokenId token);
  void finish(Sequence& sequence, FinishReason reason, std::vector<TokenId> tokens);
  void publish_stats();

  const EngineConfig config_;
  const EngineFacts& facts_;
  Stepper& stepper_;
  EnginePools pools_;

  mutable std::mutex mutex_;  // guards the next block; everything else is the engine thread's
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Sequence>> arrivals_;
  std::set<RequestId> cancels_;
  EngineStats stats_;
  RequestId next_id_ = 1;
  int32_t queued_ = 0;  // arrivals_ and waiting_ together
  bool stopping_ = false;

  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::vector<Slice>> in_flight_;  // submitted steps, oldest first
  EngineStats local_;
  std::thread thread_;
};

}  // namespace exode
