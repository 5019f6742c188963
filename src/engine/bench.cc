#include "engine/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <tuple>

#include "engine/runner.h"

namespace exode {
namespace {

constexpr int32_t kWarmSteps = 4;
constexpr double kRepeatBelowSeconds = 1.5;  // longer prompts are measured once
constexpr int kRepeats = 3;
constexpr int32_t kRow = 1 << 20;  // bytes

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// --- Bandwidth ------------------------------------------------------------------------------

double best_seconds(const std::vector<double>& seconds) {
  return *std::min_element(seconds.begin(), seconds.end());
}

// Before the engine takes its memory, so the buffers are gone when it plans.
Result<BenchBandwidth> measure_bandwidth(const EngineConfig& config) {
  EXODE_ASSIGN(const auto device, open_device({.name = config.device,
                                               .threads = config.threads,
                                               .total_limit = config.gpu_memory_limit}));
  const bool gpu = device->backend() == Backend::kCuda;
  const int32_t rows = gpu ? 2048 : 128;  // far larger than any cache
  const int32_t parts = gpu ? 4096 : 256;
  const auto bytes = static_cast<size_t>(rows) * kRow;
  EXODE_ASSIGN(const Buffer from, device->allocate(bytes, "bandwidth probe"));
  EXODE_ASSIGN(const Buffer to, device->allocate(bytes, "bandwidth probe"));
  const TensorView x = dense_view(from.bytes().data(), DType::kU8, {rows, kRow});
  const TensorView copy = dense_view(to.bytes().data(), DType::kU8, {rows, kRow});
  const TensorView sums = dense_view(to.bytes().data(), DType::kI32, {parts});
  const OpTable ops = gpu ? cuda_ops(device->caps(), Numerics::kExact) : cpu_ops(device->caps());
  Arena none = Arena::over({});
  Exec run(Exec::Mode::kRun, ops, device->stream(), none);
  run(ops::FillRandom{.out = x, .seed = 1});  // no page or line is all zeros
  const auto measure = [&](const auto& op) {
    constexpr size_t kTimes = 8;
    const auto clock = device->clock(kTimes + 1);
    run(op);
    clock->mark();
    for (size_t i = 0; i < kTimes; ++i) {
      run(op);
      clock->mark();
    }
    return best_seconds(clock->intervals());
  };
  const double read = measure(ops::ReadWords{.x = x, .out = sums});
  const double copied = measure(ops::CopyBytes{.x = x, .out = copy});
  const auto size = static_cast<double>(bytes);
  return BenchBandwidth{.read = size / read, .copy = 2 * size / copied};
}

// --- Steps ----------------------------------------------------------------------------------

// Sequences that run through the stepper as the engine loop would run them, without requests.
class Batch {
 public:
  Batch(ModelRunner& runner, int32_t rows_max) : runner_(runner), rows_max_(rows_max) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    while (!in_flight_.empty()) collect();
    for (const auto& s : running_) {
      for (const BlockId block : s->blocks) runner_.kv()->drop(block);
      if (s->slot.valid()) runner_.states()->drop(s->slot);
    }
  }

  // `computed` of the `prompt` tokens are taken as done. False when it does not fit.
  bool add(int32_t prompt, int32_t computed, int32_t tokens_max) {
    auto s = std::make_unique<Sequence>();
    s->prompt_count = prompt;
    s->computed = computed;
    s->tokens_max = tokens_max;
    s->sink = [](const TokenEvent&) {};
    const auto index = static_cast<int64_t>(running_.size());
    for (int64_t i = 0; i < prompt; ++i) {  // other tokens, and so other experts, for each
      s->tokens.push_back(static_cast<TokenId>((i * 7919 + index * 104729) % runner_.spec().vocab));
    }
    if (runner_.kv() != nullptr) {
      const int32_t blocks = blocks_for_tokens(s->length_max());
      if (runner_.kv()->free_blocks() < blocks) return false;
      for (int32_t i = 0; i < blocks; ++i) s->blocks.push_back(runner_.kv()->take().value());
    }
    if (runner_.states() != nullptr) s->slot = runner_.states()->take().value();
    running_.push_back(std::move(s));
    return true;
  }

  std::vector<Slice> next_slices() const { return schedule_step(running_, rows_max_); }

  // Submits the next step and collects one when enough are under way; the host's time to submit.
  double step() {
    std::vector<Slice> slices = next_slices();
    const double start = now();
    runner_.submit(slices);
    const double taken = now() - start;
    int32_t samples = 0;
    for (const Slice& slice : slices) {
      slice.sequence->computed += slice.count;
      ++slice.sequence->in_flight;
      slice.sequence->drawn = slice.samples ? samples++ : -1;
    }
    in_flight_.push_back(std::move(slices));
    if (in_flight_.size() > static_cast<size_t>(runner_.ahead())) collect();
    return taken;
  }

  void collect() {
    const std::vector<Slice> slices = std::move(in_flight_.front());
    in_flight_.pop_front();
    const std::span<const TokenId> drawn = runner_.collect();
    for (size_t i = 0; i < slices.size(); ++i) {
      Sequence& s = *slices[i].sequence;
      if (--s.in_flight == 0) s.drawn = -1;
      if (slices[i].samples) s.tokens.push_back(drawn[i]);
    }
  }
  void drain() {
    while (!in_flight_.empty()) collect();
  }

 private:
  ModelRunner& runner_;
  int32_t rows_max_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::vector<Slice>> in_flight_;
};

std::vector<BenchOp> grouped(const std::vector<OpTime>& times) {
  std::map<std::tuple<std::string_view, uint64_t, uint64_t>, BenchOp> groups;
  for (const OpTime& t : times) {
    BenchOp& group = groups[{t.op, t.cost.bytes, t.cost.flops}];
    group.op = t.op;
    ++group.calls;
    group.bytes += t.cost.bytes;
    group.flops += t.cost.flops;
    group.seconds += t.seconds;
  }
  std::vector<BenchOp> ops;
  for (auto& [key, op] : groups) ops.push_back(std::move(op));
  std::sort(ops.begin(), ops.end(),
            [](const BenchOp& a, const BenchOp& b) { return a.seconds > b.seconds; });
  return ops;
}

class Bench {
 public:
  Bench(const EngineConfig& config, const BenchOptions& options, ModelRunner& runner)
      : rows_max_(config.max_num_batched_tokens), options_(options), runner_(runner) {}

  BenchDecode decode(int32_t context, int32_t rows) {
    BenchDecode out{.context = context, .rows = rows, .skipped = {}, .ops = {}};
    Batch batch(runner_, rows_max_);
    const int32_t steps_max = options_.steps + 2 * kWarmSteps;
    for (int32_t i = 0; i < rows; ++i) {
      if (batch.add(context + 1, context, steps_max)) continue;
      out.skipped =
          fmt::format("the kv cache holds {} tokens, {} are needed", runner_.facts().kv_tokens,
                      int64_t{rows} * (context + 1 + steps_max));
      return out;
    }
    for (int32_t i = 0; i < kWarmSteps; ++i) batch.step();
    const double start = now();
    for (int32_t i = 0; i < options_.steps; ++i) out.submit_seconds += batch.step();
    out.step_seconds = (now() - start) / options_.steps;
    out.submit_seconds /= options_.steps;
    batch.drain();
    out.ops = grouped(runner_.profile(batch.next_slices()));
    return out;
  }

  BenchPrefill prefill(int32_t tokens) {
    BenchPrefill out{.tokens = tokens, .chunk = std::min(tokens, rows_max_), .ops = {}};
    out.seconds = run_prompt(tokens);
    for (int i = 1; i < kRepeats && out.seconds < kRepeatBelowSeconds; ++i) {
      out.seconds = std::min(out.seconds, run_prompt(tokens));
    }
    Batch batch(runner_, rows_max_);
    EXODE_CHECK(batch.add(tokens, tokens - out.chunk, 1), "a prompt does not fit a second time");
    out.ops = grouped(runner_.profile(batch.next_slices()));
    return out;
  }

 private:
  double run_prompt(int32_t tokens) {
    Batch batch(runner_, rows_max_);
    EXODE_CHECK(batch.add(tokens, 0, 1), "the plan has no room for the prompt");
    const double start = now();
    while (!batch.next_slices().empty()) batch.step();
    batch.drain();
    return now() - start;
  }

  int32_t rows_max_;
  const BenchOptions& options_;
  ModelRunner& runner_;
};

Status check_options(const BenchOptions& o) {
  const auto in_range = [](const char* name, const std::vector<int32_t>& values, int32_t low,
                           int32_t high) -> Status {
    for (const int32_t value : values) {
      if (value < low || value > high) {
        return invalid(fmt::format("--{} {} is outside {}…{}", name, value, low, high));
      }
    }
    return Done{};
  };
  EXODE_TRY(in_range("contexts", o.contexts, 0, 1 << 24));
  EXODE_TRY(in_range("rows", o.rows, 1, 1024));
  EXODE_TRY(in_range("prefill", o.prefill, 2, 1 << 24));
  EXODE_TRY(in_range("steps", {o.steps}, 1, 1 << 20));
  return Done{};
}

EngineConfig config_for(EngineConfig config, const BenchOptions& o) {
  int32_t context = 0;
  for (const int32_t c : o.contexts) {
    context = std::max(context, c + 1 + o.steps + 2 * kWarmSteps);
  }
  for (const int32_t p : o.prefill) context = std::max(context, p + 1);
  config.max_model_len = std::max(config.max_model_len, context);
  config.max_num_seqs = *std::max_element(o.rows.begin(), o.rows.end());
  config.max_num_batched_tokens = std::max(config.max_num_batched_tokens, config.max_num_seqs);
  if (config.kv_memory == 0) config.kv_memory = SIZE_MAX;  // all sequences, as far as they fit
  return config;
}

}  // namespace

BenchOp total_of(const std::vector<BenchOp>& ops) {
  BenchOp total{.op = "total"};
  for (const BenchOp& op : ops) {
    total.calls += op.calls;
    total.bytes += op.bytes;
    total.flops += op.flops;
    total.seconds += op.seconds;
  }
  return total;
}

Result<BenchReport> run_bench(EngineConfig config, const BenchOptions& options) {
  EXODE_TRY(check_options(options));
  if (options.rows.empty() || options.contexts.empty()) {
    return invalid("--rows and --contexts need at least one value");
  }
  const auto say = [&](const std::string& what) {
    if (options.progress) options.progress(what);
  };
  BenchReport report;
  say("bandwidth");
  EXODE_ASSIGN(report.bandwidth, measure_bandwidth(config));
  config = config_for(std::move(config), options);
  say("loading");
  EXODE_ASSIGN(const auto runner, ModelRunner::create(config));
  report.facts = runner->facts();
  report.peak_bytes = report.facts.device_used_bytes;
  Bench bench(config, options, *runner);
  const auto note_peak = [&] {
    report.peak_bytes = std::max(report.peak_bytes, runner->device().used_bytes());
  };
  for (const int32_t context : options.contexts) {
    for (const int32_t rows : options.rows) {
      say(fmt::format("decode, {} rows at context {}", rows, context));
      report.decodes.push_back(bench.decode(context, rows));
      note_peak();
    }
  }
  for (const int32_t tokens : options.prefill) {
    say(fmt::format("prefill of {} tokens", tokens));
    report.prefills.push_back(bench.prefill(tokens));
    note_peak();
  }
  return report;
}

}  // namespace exode
