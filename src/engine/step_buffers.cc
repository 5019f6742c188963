#include "engine/step_buffers.h"

#include <algorithm>

namespace exode {
namespace {

int32_t history_entries(const StepLimits& limits) {
  return limits.seqs * std::min(limits.context_max, limits.vocab);
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

}  // namespace

StepBuffers::StepBuffers(const StepLimits& limits, Arena& arena) : limits_(limits) {
  const auto take = [&](DType dtype, Shape shape) {
    const auto bytes = static_cast<size_t>(shape.elements()) * dtype_bytes(dtype);
    return dense_view(arena.take(bytes).data(), dtype, shape);
  };
  const auto structs = [&](int32_t count, size_t size) {
    return take(DType::kU8, {static_cast<int32_t>(static_cast<size_t>(count) * size)});
  };
  tokens_ = take(DType::kI32, {limits.rows});
  positions_ = take(DType::kI32, {limits.rows});
  seq_of_row_ = take(DType::kI32, {limits.rows});
  row_first_ = take(DType::kI32, {limits.seqs});
  row_count_ = take(DType::kI32, {limits.seqs});
  state_slot_ = take(DType::kI32, {limits.seqs});
  fresh_ = take(DType::kI32, {limits.seqs});
  block_table_ = take(DType::kI32, {limits.seqs, std::max(limits.blocks_per_seq, 1)});
  sample_rows_ = take(DType::kI32, {limits.samples});
  logits_ = take(DType::kF32, {limits.samples, limits.vocab});
  next_tokens_ = take(DType::kI32, {limits.samples});
  sample_params_ = structs(limits.samples, sizeof(ops::SampleRow));
  history_ = structs(history_entries(limits), sizeof(ops::TokenCount));
  bias_ = structs(limits.seqs * kLogitBiasMax, sizeof(ops::TokenBias));
}

void StepBuffers::upload(Device& device, const TensorView& target,
                         std::span<const std::byte> host) {
  const auto capacity = static_cast<size_t>(target.shape.elements()) * dtype_bytes(target.dtype);
  EXODE_CHECK(host.size() <= capacity, "step larger than planned");
  device.copy_in({target.data, capacity}, host);
}

void StepBuffers::fill(Device& device, std::span<const Slice> slices) {
  write_slices(device, slices);
  write_sampling(device, slices);
}

void StepBuffers::write_slices(Device& device, std::span<const Slice> slices) {
  const auto column = [&](const TensorView& target, const auto& value_of_row) {
    host_.clear();
    for (size_t s = 0; s < slices.size(); ++s) {
      for (int32_t r = 0; r < slices[s].count; ++r) host_.push_back(value_of_row(s, r));
    }
    upload(device, target, bytes_of(host_));
  };
  const auto per_seq = [&](const TensorView& target, const auto& value_of_seq) {
    host_.clear();
    for (size_t s = 0; s < slices.size(); ++s) host_.push_back(value_of_seq(s));
    upload(device, target, bytes_of(host_));
  };
  column(tokens_, [&](size_t s, int32_t r) {
    return slices[s].sequence->tokens[static_cast<size_t>(slices[s].first + r)];
  });
  column(positions_, [&](size_t s, int32_t r) { return slices[s].first + r; });
  column(seq_of_row_, [&](size_t s, int32_t) { return static_cast<int32_t>(s); });
  rows_ = static_cast<int32_t>(host_.size());
  seqs_ = static_cast<int32_t>(slices.size());
  int32_t first = 0;
  per_seq(row_first_, [&](size_t s) {
    const int32_t row = first;
    first += slices[s].count;
    return row;
  });
  per_seq(row_count_, [&](size_t s) { return slices[s].count; });
  per_seq(state_slot_, [&](size_t s) { return std::max(slices[s].sequence->slot.index, 0); });
  per_seq(fresh_, [&](size_t s) { return slices[s].first == 0 ? 1 : 0; });

  for (size_t s = 0; s < slices.size(); ++s) {
    host_.clear();
    for (BlockId block : slices[s].sequence->blocks) host_.push_back(block.index);
    upload(device, block_table_.slice_rows(static_cast<int32_t>(s), 1), bytes_of(host_));
  }
}

void StepBuffers::write_sampling(Device& device, std::span<const Slice> slices) {
  host_.clear();
  host_history_.clear();
  host_bias_.clear();
  host_params_.clear();
  int32_t row = -1;
  for (const Slice& slice : slices) {
    row += slice.count;
    if (!slice.samples) continue;
    const Sequence& q = *slice.sequence;
    ops::SampleRow p{.temperature = q.sampling.temperature,
                     .top_p = q.sampling.top_p,
                     .min_p = q.sampling.min_p,
                     .top_k = q.sampling.top_k,
                     .presence = q.sampling.presence_penalty,
                     .frequency = q.sampling.frequency_penalty,
                     .repetition = q.sampling.repetition_penalty,
                     .history_first = static_cast<int32_t>(host_history_.size()),
                     .bias_first = static_cast<int32_t>(host_bias_.size()),
                     .active = 1,
                     .seed = q.sampling.seed,
                     .position = static_cast<uint64_t>(q.length())};
    for (const auto& [id, count] : q.history) host_history_.push_back({id, count});
    for (const LogitBias& b : q.sampling.logit_bias) host_bias_.push_back({b.token, b.bias});
    p.history_count = static_cast<int32_t>(host_history_.size()) - p.history_first;
    p.bias_count = static_cast<int32_t>(host_bias_.size()) - p.bias_first;
    host_.push_back(row);
    host_params_.push_back(p);
  }
  samples_ = static_cast<int32_t>(host_params_.size());
  upload(device, sample_rows_, bytes_of(host_));
  upload(device, sample_params_, bytes_of(host_params_));
  upload(device, history_, bytes_of(host_history_));
  upload(device, bias_, bytes_of(host_bias_));
}

void StepBuffers::fill_all_rows(Device& device, const Slice& slice) {
  write_slices(device, std::span(&slice, 1));
  host_.clear();
  for (int32_t r = 0; r < slice.count; ++r) host_.push_back(r);
  samples_ = slice.count;
  upload(device, sample_rows_, bytes_of(host_));
}

StepInputs StepBuffers::inputs_for(int32_t rows, int32_t seqs, int32_t samples) const {
  return {.tokens = tokens_.slice_rows(0, rows),
          .positions = positions_.slice_rows(0, rows),
          .seq_of_row = seq_of_row_.slice_rows(0, rows),
          .seqs = {.row_first = row_first_.slice_rows(0, seqs),
                   .row_count = row_count_.slice_rows(0, seqs),
                   .state_slot = state_slot_.slice_rows(0, seqs),
                   .fresh = fresh_.slice_rows(0, seqs)},
          .sample_rows = sample_rows_.slice_rows(0, samples)};
}

ops::Sample StepBuffers::sample_op(int32_t samples, int32_t vocab_limit) const {
  return {
      .logits = logits(samples),
      .rows = sample_params_.slice_rows(0, samples * static_cast<int32_t>(sizeof(ops::SampleRow))),
      .history = history_,
      .bias = bias_,
      .vocab_limit = vocab_limit,
      .next_token = next_tokens_.slice_rows(0, samples)};
}

}  // namespace exode
