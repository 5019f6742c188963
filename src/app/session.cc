#include "app/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "app/progress.h"

namespace exode::app {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Hands events from the engine thread to the command's thread.
class Mailbox {
 public:
  void put(TokenEvent event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    arrived_.notify_one();
  }
  // Empty when nothing arrived within the poll interval.
  std::deque<TokenEvent> take() {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, std::chrono::milliseconds(200), [&] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<TokenEvent> events_;
};

}  // namespace

std::string human_bytes(size_t bytes) {
  const auto value = static_cast<double>(bytes);
  return value >= 0x1p30 ? fmt::format("{:.2f} GiB", value / 0x1p30)
                         : fmt::format("{:.1f} MiB", value / 0x1p20);
}

Result<std::unique_ptr<Engine>> open_engine(EngineConfig config, const ModelFiles& files) {
  ProgressBar bar("loading weights");
  if (files.tokenizer) config.vocab_limit = files.tokenizer->size();
  config.progress = [&](uint64_t done, uint64_t total) { bar.update(done, total); };
  return Engine::create(config);
}

std::string startup_report(const EngineFacts& f, const std::string& model) {
  std::string formats;
  for (const auto& [name, count] : f.weight_formats) {
    formats += fmt::format("{}{} × {}", formats.empty() ? "" : ", ", count, name);
  }
  std::string out = fmt::format("model      {} ({})\n", model, f.family);
  out += fmt::format("device     {}\n", f.device);
  out += fmt::format("weights    {} of files, matrices: {}\n", human_bytes(f.weight_file_bytes),
                     formats);
  out += fmt::format("head       {}\n", f.head);
  if (f.embedding_host_bytes > 0) {
    out +=
        fmt::format("embedding  {} in pinned host memory\n", human_bytes(f.embedding_host_bytes));
  }
  out += fmt::format("kv cache   {} tokens in {}\n", f.kv_tokens, f.kv_format);
  if (f.state_slots > 0) out += fmt::format("state      {} slots\n", f.state_slots);
  out += fmt::format("context    {} tokens\n", f.context_max);
  size_t total = 0;
  for (const PlanLine& line : f.plan) {
    out += fmt::format("  {:<18}{:>12}\n", line.purpose, human_bytes(line.bytes));
    total += line.bytes;
  }
  out += fmt::format("  {:<18}{:>12}\n", "total", human_bytes(total));
  if (!f.self_test.empty()) out += fmt::format("self-test  {}\n", f.self_test);
  out += fmt::format("in use     {} as the {} reports\n", human_bytes(f.device_used_bytes),
                     f.device.starts_with("cuda") ? "driver" : "system");
  out += fmt::format(
      "loaded in {:.2f} s, weights at {:.2f} GB/s\n", f.load_seconds,
      static_cast<double>(f.weight_file_bytes) / 1e9 / std::max(f.weight_seconds, 1e-6));
  return out;
}

Result<Generation> generate(Engine& engine, Request request,
                            const std::function<void(TokenId)>& on_token,
                            const std::function<bool()>& interrupted) {
  const auto mailbox = std::make_shared<Mailbox>();
  const Clock::time_point start = Clock::now();
  EXODE_ASSIGN(const RequestId id, engine.submit(std::move(request), [mailbox](TokenEvent event) {
    mailbox->put(std::move(event));
  }));
  Generation out;
  bool cancelled = false;
  while (out.finish == FinishReason::kNone) {
    for (TokenEvent& event : mailbox->take()) {
      for (TokenId token : event.tokens) {
        if (out.ids.empty()) out.first_token_seconds = seconds_since(start);
        out.ids.push_back(token);
        on_token(token);
      }
      out.finish = event.finish;
      out.error = std::move(event.error);
    }
    if (!cancelled && interrupted()) {
      engine.cancel(id);
      cancelled = true;
    }
  }
  out.total_seconds = seconds_since(start);
  return out;
}

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
    case FinishReason::kNone:
      break;
  }
  return "none";
}

}  // namespace exode::app
