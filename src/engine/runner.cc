#include "engine/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"

namespace exode {
namespace {

// Logit rows of one evaluation step: bounded by bytes, since a vocabulary may have 250 K entries.
constexpr size_t kEvaluationLogitBytes = size_t{64} << 20;
constexpr double kDefaultMemoryShare = 0.8;

int32_t evaluation_rows(const EngineConfig& config, int32_t vocab) {
  const auto fits =
      static_cast<int32_t>(kEvaluationLogitBytes / (sizeof(float) * static_cast<size_t>(vocab)));
  return std::clamp(fits, 1, config.max_num_batched_tokens);
}

Status check_config(const EngineConfig& c) {
  const auto in_range = [](const char* name, int64_t value, int64_t low, int64_t high) -> Status {
    if (value >= low && value <= high) return Done{};
    return invalid(fmt::format("--{} {} is outside {}…{}", name, value, low, high));
  };
  EXODE_TRY(in_range("max-num-seqs", c.max_num_seqs, 1, 1024));
  EXODE_TRY(in_range("max-num-batched-tokens", c.max_num_batched_tokens, 1, 65536));
  EXODE_TRY(in_range("max-model-len", c.max_model_len, 0, 1 << 30));
  EXODE_TRY(in_range("queue-max", c.queue_max, 1, 1 << 20));
  if (c.dtype != DType::kF32 && c.dtype != DType::kBF16) {
    return invalid(
        fmt::format("--dtype {} is not supported; use f32 or bf16", dtype_name(c.dtype)));
  }
  return Done{};
}

Result<OpTable> ops_of(const Device& device, DType dtype) {
  if (device.backend() == Backend::kCpu) return cpu_ops(device.caps());
  if (device.backend() == Backend::kCuda) {
    return cuda_ops(device.caps(), dtype == DType::kF32 ? Numerics::kExact : Numerics::kFast);
  }
  return unsupported(fmt::format("no op table for device {}", device.caps().name));
}

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(const EngineConfig& config) {
  EXODE_TRY(check_config(config));
  const auto start = std::chrono::steady_clock::now();
  auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(config));
  EXODE_TRY(runner->open());
  EXODE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(config.model));
  EXODE_TRY(runner->plan(checkpoint));
  EXODE_TRY(runner->allocate());
  EXODE_TRY(runner->load(checkpoint));
  runner->device_->seal();
  runner->describe(checkpoint);
  runner->facts_.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return runner;
}

Status ModelRunner::open() {
  const std::string name = config_.kv_cache_dtype == "auto" ? std::string(dtype_name(config_.dtype))
                                                            : config_.kv_cache_dtype;
  format_ = find_kv_format(name);
  if (format_ == nullptr) {
    return unsupported(
        fmt::format("--kv-cache-dtype {} is not known; available: {}", name, kv_format_names()));
  }
  EXODE_ASSIGN(device_, open_device({.name = config_.device,
                                     .threads = config_.threads,
                                     .memory_limit = config_.memory_limit}));
  EXODE_ASSIGN(ops_, ops_of(*device_, config_.dtype));
  if (format_->attend[static_cast<size_t>(ops_.backend)].launch == nullptr) {
    return unsupported(
        fmt::format("--kv-cache-dtype {} has no kernels for device {}; available: {}", name,
                    device_->caps().name, kv_format_names()));
  }
  return Done{};
}

StepLimits ModelRunner::limits(const ModelSpec& spec) const {
  const int32_t context = config_.max_model_len > 0 ? config_.max_model_len : spec.context_max;
  const int32_t evaluated = config_.evaluation ? evaluation_rows(config_, spec.vocab) : 0;
  return {.rows = config_.max_num_batched_tokens,
          .seqs = config_.max_num_seqs,
          .samples = std::max(config_.max_num_seqs, evaluated),
          .blocks_per_seq = blocks_for_tokens(context),
          .vocab = spec.vocab,
          .context_max = context};
}

Status ModelRunner::plan(const Checkpoint& checkpoint) {
  Arena weights = Arena::counting();
  WeightLoader loader(WeightLoader::Mode::kPlan, checkpoint, weights, *device_);
  EXODE_ASSIGN(model_, make_model(checkpoint, loader, {}));
  Arena io = Arena::counting();
  buffers_.emplace(limits(model_->spec()), io);
  needs_ = {.weights = weights.peak_bytes(),
            .workspace = plan_workspace(*model_),
            .step_io = io.peak_bytes(),
            .memory = config_.memory_limit > 0
                          ? config_.memory_limit
                          : static_cast<size_t>(static_cast<double>(device_->caps().memory_bytes) *
                                                kDefaultMemoryShare)};
  EXODE_ASSIGN(plan_, make_memory_plan(model_->spec(), *format_, config_, needs_));
  return Done{};
}

// Row counts are not padded on the CPU, so every count that may run is planned.
size_t ModelRunner::plan_workspace(const Model& model) const {
  Arena arena = Arena::counting();
  Exec x(Exec::Mode::kPlan, ops_, device_->stream(), arena);
  const Caches caches = make_caches(true);
  const StepLimits limit = limits(model.spec());
  const auto plan_step = [&](int32_t rows, int32_t samples) {
    const int32_t seqs = std::min(rows, limit.seqs);
    model.forward(x, buffers_->inputs_for(rows, seqs, samples), caches,
                  {buffers_->logits(samples)});
    x(buffers_->sample_op(samples, model.spec().vocab));
  };
  for (int32_t rows = 1; rows <= limit.rows; ++rows) plan_step(rows, std::min(rows, limit.samples));
  for (int32_t samples = 1; samples <= std::min(limit.samples, limit.rows); ++samples) {
    plan_step(limit.rows, samples);
  }
  return arena.peak_bytes();
}

Caches ModelRunner::make_caches(bool planning) const {
  Caches caches;
  const ModelSpec& spec = model_->spec();
  // Plan mode validates shapes and never touches memory, so pools over one fake slot will do.
  std::byte* fake = reinterpret_cast<std::byte*>(uintptr_t{1} << 41);
  for (const KvGeometry& g : spec.kv_groups) {
    const KvPool fake_pool(g, *format_, 1, {fake, KvPool::bytes_for(g, *format_, 1)});
    const KvPool& pool = planning ? fake_pool : *kv_;
    std::vector<KvView> views;
    for (int32_t i = 0; i < g.layers; ++i) views.push_back(pool.layer(i, buffers_->block_table()));
    caches.kv.push_back(std::move(views));
  }
  if (spec.state) {
    const int32_t slots = config_.max_num_seqs;
    const StatePool fake_pool(*spec.state, slots,
                              {fake, spec.state->bytes_per_slot() * static_cast<size_t>(slots)});
    const StatePool& pool = planning ? fake_pool : *states_;
    for (int32_t i = 0; i < spec.state->layers; ++i) caches.state.push_back(pool.layer(i));
  }
  return caches;
}

Status ModelRunner::allocate() {
  const auto line = [&](std::string_view purpose) {
    for (const PlanLine& l : plan_.lines) {
      if (l.purpose == purpose) return l.bytes;
    }
    return size_t{0};
  };
  const auto take = [&](Buffer& buffer, std::string_view purpose) -> Status {
    EXODE_ASSIGN(buffer, device_->allocate(line(purpose), purpose));
    return Done{};
  };
  EXODE_TRY(take(weight_memory_, "weights"));
  EXODE_TRY(take(workspace_memory_, "workspace"));
  EXODE_TRY(take(io_memory_, "step io"));
  EXODE_TRY(take(state_memory_, "recurrent state"));
  EXODE_TRY(take(kv_memory_, "kv cache"));
  const ModelSpec& spec = model_->spec();
  Arena io = Arena::over(io_memory_.bytes());
  buffers_.emplace(limits(spec), io);
  workspace_.emplace(Arena::over(workspace_memory_.bytes()));
  if (!spec.kv_groups.empty()) {
    kv_.emplace(spec.kv_groups[0], *format_, plan_.kv_blocks, kv_memory_.bytes());
  }
  if (spec.state) states_.emplace(*spec.state, plan_.state_slots, state_memory_.bytes());
  caches_ = make_caches(false);
  return Done{};
}

Status ModelRunner::load(const Checkpoint& checkpoint) {
  const uint64_t total = checkpoint.file_bytes();
  Arena arena = Arena::over(weight_memory_.bytes());
  WeightLoader loader(WeightLoader::Mode::kLoad, checkpoint, arena, *device_, [&](uint64_t done) {
    if (config_.progress) config_.progress(std::min(done, total), total);
  });
  EXODE_ASSIGN(model_, make_model(checkpoint, loader, {}));
  if (config_.progress) config_.progress(total, total);
  for (const auto& [name, count] : loader.format_counts())
    facts_.weight_formats.emplace_back(name, count);
  std::string extra;
  for (const std::string& name : loader.unused()) {
    if (!is_skipped_tensor(name)) extra += (extra.empty() ? "" : ", ") + name;
  }
  if (!extra.empty()) log_warn("weights", fmt::format("tensors not used by this model: {}", extra));
  return Done{};
}

void ModelRunner::describe(const Checkpoint& checkpoint) {
  const ModelSpec& spec = model_->spec();
  facts_.family = spec.family;
  facts_.device =
      fmt::format("{}, {} threads", device_->caps().name, device_->caps().multiprocessors);
  facts_.kv_format = format_->name;
  facts_.vocab = spec.vocab;
  facts_.context_max = plan_.context_max;
  facts_.kv_tokens = int64_t{plan_.kv_blocks} * kKvBlock;
  facts_.state_slots = plan_.state_slots;
  facts_.plan = plan_.lines;
  facts_.weight_file_bytes = checkpoint.file_bytes();
}

void ModelRunner::forward(const StepInputs& inputs, const StepOutputs& outputs) {
  Exec x(Exec::Mode::kRun, ops_, device_->stream(), *workspace_);
  model_->forward(x, inputs, caches_, outputs);
}

std::span<const TokenId> ModelRunner::step(std::span<const Slice> slices) {
  buffers_->fill(*device_, slices);
  const int32_t samples = buffers_->samples();
  forward(buffers_->inputs(), {buffers_->logits(samples)});
  drawn_.resize(static_cast<size_t>(samples));
  if (samples > 0) {
    const int32_t vocab = model_->spec().vocab;
    const int32_t limit = config_.vocab_limit > 0 ? std::min(config_.vocab_limit, vocab) : vocab;
    Exec x(Exec::Mode::kRun, ops_, device_->stream(), *workspace_);
    x(buffers_->sample_op(samples, limit));
    const auto bytes = std::as_writable_bytes(std::span(drawn_));
    device_->copy_out(bytes, {buffers_->next_tokens().data, bytes.size()});
  }
  results_.clear();
  size_t next = 0;
  for (const Slice& slice : slices) results_.push_back(slice.samples ? drawn_[next++] : -1);
  return results_;
}

Status ModelRunner::evaluate(std::span<const TokenId> tokens, const Engine::LogitRows& rows) {
  EXODE_CHECK(config_.evaluation, "evaluate() was not planned");
  const auto length = static_cast<int32_t>(tokens.size());
  const int32_t vocab = model_->spec().vocab;
  if (length == 0 || length > plan_.context_max) {
    return invalid(
        fmt::format("{} tokens; between 1 and {} can be evaluated", length, plan_.context_max));
  }
  for (TokenId id : tokens) {
    if (id < 0 || id >= vocab)
      return invalid(fmt::format("token {} is outside the vocabulary of {}", id, vocab));
  }
  Sequence sequence;
  sequence.tokens.assign(tokens.begin(), tokens.end());
  for (int32_t i = 0; kv_ && i < blocks_for_tokens(length); ++i) {
    sequence.blocks.push_back(kv_->take().value());
  }
  if (states_) sequence.slot = states_->take().value();
  const int32_t chunk = evaluation_rows(config_, vocab);
  for (int32_t first = 0; first < length; first += chunk) {
    const int32_t count = std::min(chunk, length - first);
    buffers_->fill_all_rows(*device_, {&sequence, first, count, false});
    forward(buffers_->inputs(), {buffers_->logits(count)});
    host_logits_.resize(static_cast<size_t>(count) * static_cast<size_t>(vocab));
    const auto bytes = std::as_writable_bytes(std::span(host_logits_));
    device_->copy_out(bytes, {buffers_->logits(count).data, bytes.size()});
    rows(first, count, host_logits_.data());
  }
  for (BlockId block : sequence.blocks) kv_->drop(block);
  if (states_) states_->drop(sequence.slot);
  return Done{};
}

}  // namespace exode
