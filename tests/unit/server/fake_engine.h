// An engine without a model: replies with scripted tokens at a given pace, so that the server is
// tested with exact texts, delays, cancellations and failures.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "engine/api.h"

namespace exode::server {

class FakeEngine final : public Engine {
 public:
  // The reply to a prompt; it is cut at tokens_max and at the first stop token.
  std::function<std::vector<TokenId>(const Request&)> reply;
  std::chrono::microseconds pace{0};  // between tokens of one request
  size_t queue_max = 1000;
  int32_t fail_after = -1;  // tokens before an error event; negative = never

  FakeEngine() {
    facts_.vocab = 260;
    facts_.context_max = 512;
  }
  ~FakeEngine() override { stop(); }

  void start() override {
    thread_ = std::thread([this] { loop(); });
  }
  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  Result<RequestId> submit(Request request, Sink sink) override {
    const std::lock_guard lock(mutex_);
    if (active_.size() >= queue_max) return Error{ErrorCode::kBusy, "queue full"};
    const RequestId id = ++last_id_;
    Running running{request, std::move(sink), reply(request), 0};
    active_.emplace(id, std::move(running));
    requests_.push_back(std::move(request));
    changed_.notify_all();
    return id;
  }
  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    if (active_.count(id) == 0) return;
    cancelled_.insert(id);
    changed_.notify_all();
  }
  const EngineFacts& facts() const override { return facts_; }
  EngineStats stats() const override { return {}; }
  Status evaluate(std::span<const TokenId>, const LogitRows&) override {
    return unsupported("no logits");
  }

  std::vector<Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  int32_t running() {
    const std::lock_guard lock(mutex_);
    return static_cast<int32_t>(active_.size());
  }
  int32_t cancellations() {
    const std::lock_guard lock(mutex_);
    return cancellations_;
  }

 private:
  struct Running {
    Request request;
    Sink sink;
    std::vector<TokenId> tokens;
    size_t next = 0;
  };

  TokenEvent step(RequestId id, Running* running) {
    TokenEvent event;
    event.request = id;
    event.prompt_tokens = static_cast<int32_t>(running->request.prompt.size());
    if (cancelled_.count(id) > 0) {
      ++cancellations_;
      event.finish = FinishReason::kCancelled;
      return event;
    }
    if (fail_after >= 0 && running->next >= static_cast<size_t>(fail_after)) {
      event.finish = FinishReason::kError;
      event.error = "scripted failure";
      return event;
    }
    const TokenId token = running->tokens[running->next++ % running->tokens.size()];
    event.tokens = {token};
    const auto& stops = running->request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      event.finish = FinishReason::kStop;
    } else if (running->next >= static_cast<size_t>(running->request.tokens_max)) {
      event.finish = FinishReason::kLength;
    }
    return event;
  }

  void loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (active_.empty()) {
        changed_.wait(lock);
        continue;
      }
      for (auto it = active_.begin(); it != active_.end();) {
        TokenEvent event = step(it->first, &it->second);
        const bool last = event.finish != FinishReason::kNone;
        it->second.sink(std::move(event));
        if (last) cancelled_.erase(it->first);
        it = last ? active_.erase(it) : std::next(it);
      }
      // Without a pause submit() and cancel() would hardly ever get the mutex.
      changed_.wait_for(lock, std::max(pace, std::chrono::microseconds(1)));
    }
  }

  EngineFacts facts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  bool stopping_ = false;
  RequestId last_id_ = 0;
  int32_t cancellations_ = 0;
  std::map<RequestId, Running> active_;
  std::set<RequestId> cancelled_;
  std::vector<Request> requests_;
};

}  // namespace exode::server
