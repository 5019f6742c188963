#include "engine/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <set>

#include "base/log.h"

namespace exode {
namespace {

// Logit rows of one evaluation step: bounded by bytes, since a vocabulary may have 250 K entries.
constexpr size_t kEvaluationLogitBytes = size_t{64} << 20;
constexpr double kDefaultMemoryShare = 0.8;
constexpr int32_t kGraphRowsMax = 64;
constexpr int32_t kCudaStrip = 32;  // rows that the streamed matmul reads as one run of memory

Result<HeadFormat> head_format(const EngineConfig& config) {
  // f32 asks for the numbers of the checkpoint: nothing is rounded unasked.
  if (config.head_dtype == "auto") {
    return config.dtype == DType::kF32 ? HeadFormat::kStored : HeadFormat::kAuto;
  }
  if (config.head_dtype == "bf16") return HeadFormat::kStored;
  if (config.head_dtype == "int8") return HeadFormat::kInt8;
  if (config.head_dtype == "int4") return HeadFormat::kInt4;
  return invalid(
      fmt::format("--head-dtype {} is not known; use auto, bf16, int8 or int4", config.head_dtype));
}

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
  EXODE_TRY(head_format(c));
  if (c.embedding != "device" && c.embedding != "host") {
    return invalid(fmt::format("--embedding {} is not known; use device or host", c.embedding));
  }
  if (c.dtype != DType::kF32 && c.dtype != DType::kBF16) {
    return invalid(
        fmt::format("--dtype {} is not supported; use f32 or bf16", dtype_name(c.dtype)));
  }
  return Done{};
}

Result<OpTable> ops_of(const Device& device, DType dtype) {
  const Numerics numerics = dtype == DType::kF32 ? Numerics::kExact : Numerics::kFast;
  if (device.backend() == Backend::kCpu) return cpu_ops(device.caps(), numerics);
  if (device.backend() == Backend::kCuda) return cuda_ops(device.caps(), numerics);
  return unsupported(fmt::format("no op table for device {}", device.caps().name));
}

Result<Checkpoint> open_checkpoint(const EngineConfig& config) {
  return config.synthetic.empty() ? Checkpoint::open(config.model)
                                  : Checkpoint::synthetic(config.synthetic);
}

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(const EngineConfig& config) {
  EXODE_TRY(check_config(config));
  const auto start = std::chrono::steady_clock::now();
  auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(config));
  EXODE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(config));
  EXODE_ASSIGN(auto device, open_device({.name = config.device,
                                         .threads = config.threads,
                                         .memory_limit = config.memory_limit,
                                         .total_limit = config.gpu_memory_limit}));
  EXODE_TRY(runner->open(std::move(device)));
  EXODE_TRY(runner->plan(checkpoint));
  EXODE_TRY(runner->allocate());
  EXODE_TRY(runner->load(checkpoint));
  EXODE_TRY(runner->prepare());
  EXODE_TRY(runner->check_limit());
  runner->device_->seal();
  runner->describe(checkpoint);
  runner->facts_.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return runner;
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::plan_only(const EngineConfig& config,
                                                            std::unique_ptr<Device> device) {
  EXODE_TRY(check_config(config));
  auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(config));
  EXODE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(config));
  EXODE_TRY(runner->open(std::move(device)));
  runner->config_.max_model_len = 1;  // only the model's own needs matter here
  EXODE_TRY(runner->plan(checkpoint));
  runner->describe(checkpoint);
  return runner;
}

Result<MemoryPlan> ModelRunner::plan_for(int32_t max_model_len) {
  config_.max_model_len = max_model_len;
  EXODE_TRY(plan_memory());
  return plan_;
}

Status ModelRunner::open(std::unique_ptr<Device> device) {
  const std::string name = config_.kv_cache_dtype == "auto" ? std::string(dtype_name(config_.dtype))
                                                            : config_.kv_cache_dtype;
  format_ = find_kv_format(name);
  if (format_ == nullptr) {
    return unsupported(
        fmt::format("--kv-cache-dtype {} is not known; available: {}", name, kv_format_names()));
  }
  device_ = std::move(device);
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

LoadOptions ModelRunner::load_options(Arena& host) const {
  const bool on_gpu = device_->backend() == Backend::kCuda;  // elsewhere all memory is host memory
  return {.progress = {},
          .strip = on_gpu ? kCudaStrip : 1,
          .head = head_format(config_).value(),
          .embedding_arena = on_gpu && config_.embedding == "host" ? &host : nullptr};
}

Status ModelRunner::plan(const Checkpoint& checkpoint) {
  Arena weights = Arena::counting();
  Arena host = Arena::counting();
  WeightLoader loader(WeightLoader::Mode::kPlan, checkpoint, weights, *device_, load_options(host));
  EXODE_ASSIGN(model_, make_model(checkpoint, loader, {}));
  weight_bytes_ = weights.peak_bytes();
  embedding_host_bytes_ = host.peak_bytes();
  return plan_memory();
}

Status ModelRunner::plan_memory() {
  Arena io = Arena::counting();
  buffers_.emplace(limits(model_->spec()), io);
  needs_ = {.weights = weight_bytes_,
            .workspace = plan_workspace(),
            .step_io = io.peak_bytes(),
            .memory = usable_memory()};
  EXODE_ASSIGN(plan_, make_memory_plan(model_->spec(), *format_, config_, needs_));
  return Done{};
}

size_t ModelRunner::usable_memory() const {
  const size_t device = device_->caps().memory_bytes;
  if (config_.memory_limit > 0) return std::min(config_.memory_limit, device);
  if (config_.gpu_memory_limit > 0) return device;  // the device has set aside what it needs
  return static_cast<size_t>(static_cast<double>(device) * kDefaultMemoryShare);
}

// Kernels on the CPU cost nothing extra for odd row counts. On CUDA few shapes are captured, and
// prompt steps come in multiples of 64 rows.
StepShape ModelRunner::padded(const StepShape& shape, bool decodes) const {
  if (ops_.backend == Backend::kCpu) return shape;
  const StepLimits limit = limits(model_->spec());
  if (decodes) {
    const int32_t rows =
        shape.rows <= 8 ? static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(shape.rows)))
                        : (shape.rows + 7) / 8 * 8;
    const int32_t count = std::min({rows, limit.seqs, limit.rows});
    return {count, count, count};
  }
  const int32_t step = shape.rows <= 64 ? 8 : 64;
  return {std::min((shape.rows + step - 1) / step * step, limit.rows), limit.seqs, limit.samples};
}

std::vector<StepShape> ModelRunner::planned_shapes() const {
  const StepLimits limit = limits(model_->spec());
  std::set<StepShape> shapes;
  for (int32_t rows = 1; rows <= limit.rows; ++rows) {
    const int32_t seqs = std::min(rows, limit.seqs), samples = std::min(rows, limit.samples);
    shapes.insert(padded({rows, seqs, samples}, false));
    if (rows <= limit.seqs) shapes.insert(padded({rows, rows, rows}, true));
  }
  for (int32_t samples = 1; samples <= std::min(limit.samples, limit.rows); ++samples) {
    shapes.insert(padded({limit.rows, limit.seqs, samples}, false));
  }
  return {shapes.begin(), shapes.end()};
}

size_t ModelRunner::plan_workspace() const {
  Arena arena = Arena::counting();
  Exec x(Exec::Mode::kPlan, ops_, device_->stream(), arena);
  const Caches caches = make_caches(true);
  const StepLimits limit = limits(model_->spec());
  for (const StepShape& shape : planned_shapes()) run(x, caches, shape);
  if (config_.evaluation) {
    for (int32_t rows = 1; rows <= limit.samples; ++rows) {
      model_->forward(x, buffers_->inputs({rows, 1, rows}), caches, {buffers_->logits(rows)});
    }
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
  if (embedding_host_bytes_ > 0) {
    EXODE_ASSIGN(embedding_memory_,
                 device_->allocate_host(embedding_host_bytes_, "embedding table"));
  }
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
  Arena host = Arena::over(embedding_memory_.bytes());
  LoadOptions options = load_options(host);
  options.progress = [&](uint64_t done) {
    if (config_.progress) config_.progress(std::min(done, total), total);
  };
  const auto start = std::chrono::steady_clock::now();
  WeightLoader loader(WeightLoader::Mode::kLoad, checkpoint, arena, *device_, options);
  EXODE_ASSIGN(model_, make_model(checkpoint, loader, {}));
  loader.finish();
  facts_.weight_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  facts_.head = loader.head_report();
  facts_.embedding_host_bytes = embedding_host_bytes_;
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

// Executes every decode shape once, so that nothing is loaded or set up later, and records it.
Status ModelRunner::prepare() {
  EXODE_TRY(buffers_->allocate_staging(*device_));
  const auto bytes = static_cast<size_t>(limits(model_->spec()).samples) * sizeof(TokenId);
  for (Buffer& result : results_) {
    EXODE_ASSIGN(result, device_->allocate_host(bytes, "drawn tokens"));
  }
  const bool records = ops_.backend == Backend::kCuda || config_.self_test;
  if (config_.eager || !records) return Done{};
  const int32_t seqs = std::min(config_.max_num_seqs, kGraphRowsMax);
  for (int32_t rows = 1; rows <= seqs; ++rows) {
    const StepShape shape = padded({rows, rows, rows}, true);
    if (graphs_.contains(shape)) continue;
    buffers_->fill(*device_, {}, shape);
    run(shape);
    device_->synchronize();
    graphs_[shape] = device_->record([this, shape] { run(shape); });
  }
  return config_.self_test ? self_test() : Done{};
}

// What the device set aside for code and graphs is an estimate; this is the proof.
Status ModelRunner::check_limit() {
  device_->synchronize();
  facts_.device_used_bytes = device_->used_bytes();
  if (config_.gpu_memory_limit == 0 || facts_.device_used_bytes <= config_.gpu_memory_limit) {
    return Done{};
  }
  const auto gib = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  return Error{ErrorCode::kOutOfMemory,
               fmt::format("the driver reports {:.2f} GiB in use, more than --gpu-memory-limit "
                           "{:.2f} GiB; lower --max-model-len or --max-num-seqs, pick a smaller "
                           "--kv-cache-dtype, or end other programs on the GPU",
                           gib(facts_.device_used_bytes), gib(config_.gpu_memory_limit))};
}

void ModelRunner::run(Exec& x, const Caches& caches, const StepShape& shape) const {
  x(buffers_->take_tokens_op(shape));
  model_->forward(x, buffers_->inputs(shape), caches, {buffers_->logits(shape.samples)});
  if (shape.samples == 0) return;
  const int32_t vocab = model_->spec().vocab;
  const int32_t limit = config_.vocab_limit > 0 ? std::min(config_.vocab_limit, vocab) : vocab;
  x(buffers_->sample_op(shape, limit));
}

void ModelRunner::run(const StepShape& shape, Trace* trace) {
  Exec x(Exec::Mode::kRun, ops_, device_->stream(), *workspace_, trace);
  run(x, caches_, shape);
}

int32_t ModelRunner::ahead() const { return ops_.backend == Backend::kCuda ? 1 : 0; }

bool ModelRunner::is_decode(std::span<const Slice> slices) const {
  return std::all_of(slices.begin(), slices.end(),
                     [](const Slice& s) { return s.count == 1 && s.samples; });
}

void ModelRunner::submit(std::span<const Slice> slices) {
  const bool decodes = is_decode(slices);
  const StepShape used = shape_of(slices), shape = padded(used, decodes);
  buffers_->fill(*device_, slices, shape);
  if (const auto graph = graphs_.find(shape); decodes && graph != graphs_.end()) {
    graph->second->replay();
  } else {
    run(shape);
  }
  Submitted step{.ticket = 0, .result = next_result_, .slice_samples = {}};
  next_result_ = 1 - next_result_;
  for (const Slice& slice : slices) step.slice_samples.push_back(slice.samples);
  const auto bytes = static_cast<size_t>(used.samples) * sizeof(TokenId);
  device_->copy_out_async(results_[step.result].bytes(), {buffers_->next_tokens().data, bytes});
  step.ticket = device_->ticket();
  submitted_.push_back(std::move(step));
}

std::span<const TokenId> ModelRunner::collect() {
  const Submitted step = std::move(submitted_.front());
  submitted_.pop_front();
  device_->wait(step.ticket);
  const auto* drawn = reinterpret_cast<const TokenId*>(results_[step.result].bytes().data());
  drawn_.clear();
  for (const bool samples : step.slice_samples) drawn_.push_back(samples ? *drawn++ : -1);
  return drawn_;
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
    buffers_->fill_all_rows(*device_, {.sequence = &sequence, .first = first, .count = count});
    Exec x(Exec::Mode::kRun, ops_, device_->stream(), *workspace_);
    model_->forward(x, buffers_->inputs({count, 1, count}), caches_, {buffers_->logits(count)});
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
