#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/runner.h"
#include "engine/step_buffers.h"

namespace exode {
namespace {

bool has_penalty(const SamplingParams& p) {
  return p.presence_penalty != 0 || p.frequency_penalty != 0 || p.repetition_penalty != 1;
}

Status check_sampling(const SamplingParams& p, int32_t vocab) {
  const bool finite = std::isfinite(p.temperature) && std::isfinite(p.presence_penalty) &&
                      std::isfinite(p.frequency_penalty) && std::isfinite(p.repetition_penalty);
  if (!finite || p.temperature < 0 || !(p.top_p > 0 && p.top_p <= 1) ||
      !(p.min_p >= 0 && p.min_p <= 1) || p.top_k < 0 || p.repetition_penalty <= 0) {
    return invalid("sampling parameters are out of range");
  }
  if (p.logit_bias.size() > static_cast<size_t>(kLogitBiasMax)) {
    return invalid(fmt::format("logit_bias has {} entries, the limit is {}", p.logit_bias.size(),
                               kLogitBiasMax));
  }
  for (const LogitBias& b : p.logit_bias) {
    if (b.token < 0 || b.token >= vocab || !std::isfinite(b.bias)) {
      return invalid(
          fmt::format("logit_bias names token {}, the vocabulary has {}", b.token, vocab));
    }
  }
  return Done{};
}

std::unique_ptr<Sequence> make_sequence(Request request, Engine::Sink sink, int32_t context_max) {
  auto s = std::make_unique<Sequence>();
  s->prompt_count = static_cast<int32_t>(request.prompt.size());
  s->tokens_max = std::min(request.tokens_max, context_max - s->prompt_count);
  s->tokens = std::move(request.prompt);
  s->stop_tokens = std::move(request.stop_tokens);
  s->sampling = std::move(request.sampling);
  s->sink = std::move(sink);
  s->uses_history = has_penalty(s->sampling);
  if (s->uses_history) {
    for (TokenId id : s->tokens) s->history.emplace(id, 0);
  }
  return s;
}

}  // namespace

EngineLoop::EngineLoop(const EngineConfig& config, const EngineFacts& facts, Stepper& stepper,
                       EnginePools pools)
    : config_(config), facts_(facts), stepper_(stepper), pools_(pools) {}

EngineLoop::~EngineLoop() { stop(); }

void EngineLoop::start() {
  EXODE_CHECK(!thread_.joinable(), "engine started twice");
  thread_ = std::thread([this] { run(); });
}

void EngineLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  take_arrivals();
  for (auto& s : waiting_) finish(*s, FinishReason::kCancelled, {});
  while (!in_flight_.empty()) collect_step();
  for (auto& s : running_) finish(*s, FinishReason::kCancelled, {});
  remove_finished();
  waiting_.clear();
}

Status EngineLoop::check(const Request& request) const {
  if (request.prompt.empty()) return invalid("the prompt is empty");
  if (static_cast<int64_t>(request.prompt.size()) >= facts_.context_max) {
    return invalid(
        fmt::format("the prompt has {} tokens; the context of {} must hold it and at "
                    "least one new token",
                    request.prompt.size(), facts_.context_max));
  }
  if (request.tokens_max < 1) return invalid("tokens_max must be at least 1");
  for (TokenId id : request.prompt) {
    if (id < 0 || id >= facts_.vocab) {
      return invalid(fmt::format("token {} is outside the vocabulary of {}", id, facts_.vocab));
    }
  }
  return check_sampling(request.sampling, facts_.vocab);
}

Result<RequestId> EngineLoop::submit(Request request, Engine::Sink sink) {
  EXODE_TRY(check(request));
  auto sequence = make_sequence(std::move(request), std::move(sink), facts_.context_max);
  const std::lock_guard lock(mutex_);
  if (stopping_) return Error{ErrorCode::kCancelled, "the engine is stopping"};
  if (queued_ >= config_.queue_max) {
    return Error{ErrorCode::kBusy,
                 fmt::format("{} requests are waiting, try again later", queued_)};
  }
  const RequestId id = next_id_++;
  sequence->id = id;
  arrivals_.push_back(std::move(sequence));
  ++queued_;
  wake_.notify_all();
  return id;
}

void EngineLoop::cancel(RequestId request) {
  const std::lock_guard lock(mutex_);
  cancels_.insert(request);
  wake_.notify_all();
}

EngineStats EngineLoop::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats copy = stats_;
  copy.waiting = queued_;
  return copy;
}

void EngineLoop::run() {
  while (true) {
    const bool busy = turn();
    std::unique_lock lock(mutex_);
    if (!busy) wake_.wait(lock, [&] { return stopping_ || !arrivals_.empty(); });
    if (stopping_) return;
  }
}

bool EngineLoop::turn() {
  take_arrivals();
  drop_cancelled();
  admit();
  if (!running_.empty()) run_step();
  publish_stats();
  return !running_.empty() || !waiting_.empty();
}

void EngineLoop::take_arrivals() {
  const std::lock_guard lock(mutex_);
  while (!arrivals_.empty()) {
    waiting_.push_back(std::move(arrivals_.front()));
    arrivals_.pop_front();
  }
}

void EngineLoop::drop_cancelled() {
  std::set<RequestId> cancels;
  {
    const std::lock_guard lock(mutex_);
    cancels.swap(cancels_);
  }
  if (cancels.empty()) return;
  const auto cancelled = [&](const auto& s) { return cancels.contains(s->id); };
  for (auto& s : waiting_) {
    if (cancelled(s)) finish(*s, FinishReason::kCancelled, {});
  }
  for (auto& s : running_) {
    if (cancelled(s) && !s->finished()) finish(*s, FinishReason::kCancelled, {});
  }
  const size_t removed = std::erase_if(waiting_, cancelled);
  remove_finished();
  const std::lock_guard lock(mutex_);
  queued_ -= static_cast<int32_t>(removed);
}

// First come, first served: a request that does not fit yet holds those behind it back, so that
// a stream of small ones cannot starve it. Reserving the longest outcome means a running
// sequence never runs out of memory.
void EngineLoop::admit() {
  int32_t admitted = 0;
  while (!waiting_.empty() && static_cast<int32_t>(running_.size()) < config_.max_num_seqs) {
    if (!reserve(*waiting_.front())) break;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    ++admitted;
  }
  if (admitted == 0) return;
  const std::lock_guard lock(mutex_);
  queued_ -= admitted;
}

bool EngineLoop::reserve(Sequence& s) {
  if (pools_.states != nullptr && pools_.states->free_slots() == 0) return false;
  if (pools_.kv != nullptr) {
    const int32_t blocks = blocks_for_tokens(s.length_max());
    if (pools_.kv->free_blocks() < blocks) return false;
    for (int32_t i = 0; i < blocks; ++i) s.blocks.push_back(pools_.kv->take().value());
  }
  if (pools_.states != nullptr) s.slot = pools_.states->take().value();
  return true;
}

void EngineLoop::release(Sequence& s) {
  for (BlockId block : s.blocks) pools_.kv->drop(block);
  s.blocks.clear();
  if (s.slot.valid()) pools_.states->drop(s.slot);
  s.slot = {};
}

// Penalties need the counts of every token drawn so far.
bool EngineLoop::must_collect_first() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& s) { return s->uses_history && s->drawn >= 0; });
}

void EngineLoop::run_step() {
  if (must_collect_first()) collect_step();
  std::vector<Slice> slices = schedule_step(running_, config_.max_num_batched_tokens);
  EXODE_CHECK(!slices.empty() || !in_flight_.empty() || running_.empty(),
              "sequences are running but no row was scheduled");
  const bool idle = slices.empty();
  if (!idle) submit_step(std::move(slices));
  const size_t ahead = idle ? 0 : static_cast<size_t>(stepper_.ahead());
  while (in_flight_.size() > ahead) collect_step();
}

void EngineLoop::submit_step(std::vector<Slice> slices) {
  stepper_.submit(slices);
  int32_t samples = 0;
  for (const Slice& slice : slices) {
    Sequence& s = *slice.sequence;
    local_.prompt_tokens +=
        static_cast<uint64_t>(std::clamp(s.prompt_count - slice.first, 0, slice.count));
    s.computed += slice.count;
    ++s.in_flight;
    s.drawn = slice.samples ? samples++ : -1;
  }
  ++local_.steps;
  in_flight_.push_back(std::move(slices));
}

void EngineLoop::collect_step() {
  const std::vector<Slice> slices = std::move(in_flight_.front());
  in_flight_.pop_front();
  const std::span<const TokenId> drawn = stepper_.collect();
  for (size_t i = 0; i < slices.size(); ++i) {
    Sequence& s = *slices[i].sequence;
    if (--s.in_flight == 0) s.drawn = -1;
    // A sequence may have ended while this step was under way: then its row was for nothing.
    if (slices[i].samples && !s.finished()) accept(slices[i], drawn[i]);
  }
  remove_finished();
}

void EngineLoop::remove_finished() {
  std::erase_if(running_, [this](const auto& s) {
    if (!s->finished() || s->in_flight > 0) return false;
    release(*s);
    return true;
  });
}

void EngineLoop::accept(const Slice& slice, TokenId token) {
  Sequence& s = *slice.sequence;
  s.tokens.push_back(token);
  if (s.uses_history) ++s.history[token];
  ++local_.output_tokens;
  const bool stopped =
      std::find(s.stop_tokens.begin(), s.stop_tokens.end(), token) != s.stop_tokens.end();
  if (stopped || s.output_count() >= s.tokens_max) {
    finish(s, stopped ? FinishReason::kStop : FinishReason::kLength, {token});
    return;
  }
  s.sink({.request = s.id,
          .tokens = {token},
          .finish = FinishReason::kNone,
          .error = {},
          .prompt_tokens = s.prompt_count,
          .cached_tokens = 0});
}

void EngineLoop::finish(Sequence& s, FinishReason reason, std::vector<TokenId> tokens) {
  s.sink({.request = s.id,
          .tokens = std::move(tokens),
          .finish = reason,
          .error = {},
          .prompt_tokens = s.prompt_count,
          .cached_tokens = 0});
  s.sink = nullptr;
}

void EngineLoop::publish_stats() {
  local_.running = static_cast<int32_t>(running_.size());
  if (pools_.kv != nullptr) {
    local_.kv_blocks_free = pools_.kv->free_blocks();
    local_.kv_blocks_total = pools_.kv->total_blocks();
  }
  const std::lock_guard lock(mutex_);
  stats_ = local_;
}

namespace {

class RealEngine final : public Engine {
 public:
  RealEngine(const EngineConfig& config, std::unique_ptr<ModelRunner> runner)
      : runner_(std::move(runner)),
        loop_(config, runner_->facts(), *runner_, {runner_->kv(), runner_->states()}) {}

  void start() override { loop_.start(); }
  void stop() override { loop_.stop(); }
  Result<RequestId> submit(Request request, Sink sink) override {
    return loop_.submit(std::move(request), std::move(sink));
  }
  void cancel(RequestId request) override { loop_.cancel(request); }
  const EngineFacts& facts() const override { return runner_->facts(); }
  EngineStats stats() const override { return loop_.stats(); }
  Status evaluate(std::span<const TokenId> tokens, const LogitRows& rows) override {
    return runner_->evaluate(tokens, rows);
  }

 private:
  std::unique_ptr<ModelRunner> runner_;
  EngineLoop loop_;
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config) {
  EXODE_ASSIGN(auto runner, ModelRunner::create(config));
  return std::unique_ptr<Engine>(std::make_unique<RealEngine>(config, std::move(runner)));
}

}  // namespace exode
