#include "engine/step_buffers.h"

#include <algorithm>
#include <cstring>

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

StepShape shape_of(std::span<const Slice> slices) {
  StepShape shape;
  shape.seqs = static_cast<int32_t>(slices.size());
  for (const Slice& slice : slices) {
    shape.rows += slice.count;
    shape.samples += slice.samples ? 1 : 0;
  }
  return shape;
}

StepBuffers::StepBuffers(const StepLimits& limits, Arena& arena) : limits_(limits) {
  const auto take = [&](DType dtype, Shape shape) {
    const auto bytes = static_cast<size_t>(shape.elements()) * dtype_bytes(dtype);
    return dense_view(arena.take(bytes).data(), dtype, shape);
  };
  const auto structs = [&](int32_t count, size_t size) {
    return take(DType::kU8, {static_cast<int32_t>(static_cast<size_t>(count) * size)});
  };
  for (TensorView* column : {&tokens_, &positions_, &seq_of_row_, &source_}) {
    *column = take(DType::kI32, {limits.rows});
  }
  for (TensorView* column : {&row_first_, &row_count_, &state_slot_, &fresh_}) {
    *column = take(DType::kI32, {limits.seqs});
  }
  sample_rows_ = take(DType::kI32, {limits.samples});
  sample_params_ = structs(limits.samples, sizeof(ops::SampleRow));
  block_table_ = take(DType::kI32, {limits.seqs, std::max(limits.blocks_per_seq, 1)});
  header_bytes_ = static_cast<size_t>(block_table_.data - tokens_.data);
  history_ = structs(history_entries(limits), sizeof(ops::TokenCount));
  bias_ = structs(limits.seqs * kLogitBiasMax, sizeof(ops::TokenBias));
  logits_ = take(DType::kF32, {limits.samples, limits.vocab});
  next_tokens_ = take(DType::kI32, {limits.samples});
}

Status StepBuffers::allocate_staging(Device& device) {
  device_table_.assign(static_cast<size_t>(block_table_.shape.elements()), -1);
  for (Buffer& buffer : staging_) {
    const size_t bytes = header_bytes_ + device_table_.size() * sizeof(int32_t);
    EXODE_ASSIGN(buffer, device.allocate_host(bytes, "step inputs"));
  }
  return Done{};
}

template <class T>
T* StepBuffers::staged(const TensorView& target) const {
  std::byte* base = staging_[staging_index_].bytes().data();
  return reinterpret_cast<T*>(base + (target.data - tokens_.data));
}

void StepBuffers::fill(Device& device, std::span<const Slice> slices, const StepShape& shape) {
  const StepShape used = shape_of(slices);
  EXODE_CHECK(used.rows <= shape.rows && used.seqs <= shape.seqs && used.samples <= shape.samples &&
                  shape.rows <= limits_.rows && shape.seqs <= limits_.seqs &&
                  shape.samples <= limits_.samples,
              "step larger than planned");
  staging_index_ = 1 - staging_index_;
  write_rows(slices, shape);
  write_sequences(slices, shape);
  write_samples(device, slices, shape);
  upload(device, slices);
}

void StepBuffers::write_rows(std::span<const Slice> slices, const StepShape& shape) {
  int32_t row = 0;
  int32_t *tokens = staged(tokens_), *positions = staged(positions_),
          *seq_of_row = staged(seq_of_row_), *source = staged(source_);
  for (size_t s = 0; s < slices.size(); ++s) {
    const Slice& slice = slices[s];
    for (int32_t r = 0; r < slice.count; ++r, ++row) {
      const bool known = slice.drawn < 0;
      tokens[row] = known ? slice.sequence->tokens[static_cast<size_t>(slice.first + r)] : -1;
      positions[row] = slice.first + r;
      seq_of_row[row] = static_cast<int32_t>(s);
      source[row] = slice.drawn;
    }
  }
  for (; row < shape.rows; ++row) {
    tokens[row] = seq_of_row[row] = source[row] = -1;
    positions[row] = 0;
  }
}

void StepBuffers::write_sequences(std::span<const Slice> slices, const StepShape& shape) {
  int32_t first = 0;
  for (int32_t s = 0; s < shape.seqs; ++s) {
    const bool used = s < static_cast<int32_t>(slices.size());
    const Slice slice = used ? slices[static_cast<size_t>(s)] : Slice{};
    staged(row_first_)[s] = used ? first : 0;
    staged(row_count_)[s] = slice.count;
    staged(state_slot_)[s] = used ? std::max(slice.sequence->slot.index, 0) : 0;
    staged(fresh_)[s] = used && slice.first == 0 ? 1 : 0;
    first += slice.count;
  }
}

void StepBuffers::write_samples(Device& device, std::span<const Slice> slices,
                                const StepShape& shape) {
  host_history_.clear();
  host_bias_.clear();
  auto* params = staged<ops::SampleRow>(sample_params_);
  int32_t* rows = staged(sample_rows_);
  int32_t row = -1, sample = 0;
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
                     .position = static_cast<uint64_t>(slice.first + slice.count)};
    for (const auto& [id, count] : q.history) host_history_.push_back({id, count});
    for (const LogitBias& b : q.sampling.logit_bias) host_bias_.push_back({b.token, b.bias});
    p.history_count = static_cast<int32_t>(host_history_.size()) - p.history_first;
    p.bias_count = static_cast<int32_t>(host_bias_.size()) - p.bias_first;
    rows[sample] = row;
    params[sample++] = p;
  }
  for (; sample < shape.samples; ++sample) {
    rows[sample] = -1;
    params[sample] = ops::SampleRow{};
  }
  upload_list(device, history_, bytes_of(host_history_));
  upload_list(device, bias_, bytes_of(host_bias_));
}

void StepBuffers::upload_list(Device& device, const TensorView& target,
                              std::span<const std::byte> host) {
  const auto capacity = static_cast<size_t>(target.shape.elements());
  EXODE_CHECK(host.size() <= capacity, "step larger than planned");
  device.copy_in({target.data, capacity}, host);
}

// The blocks of a sequence are reserved once, so its row of the table changes only when sequences
// come and go.
void StepBuffers::upload(Device& device, std::span<const Slice> slices) {
  const std::span<std::byte> staging = staging_[staging_index_].bytes();
  device.copy_in_async({tokens_.data, header_bytes_}, staging.first(header_bytes_));
  const auto width = static_cast<size_t>(block_table_.cols());
  for (size_t s = 0; s < slices.size(); ++s) {
    const std::vector<BlockId>& blocks = slices[s].sequence->blocks;
    EXODE_CHECK(blocks.size() <= width, "step larger than planned");
    int32_t* known = device_table_.data() + s * width;
    bool same = true;
    for (size_t i = 0; i < blocks.size(); ++i) {
      same = same && known[i] == blocks[i].index;
      known[i] = blocks[i].index;
    }
    if (same) continue;
    const size_t bytes = blocks.size() * sizeof(int32_t);
    const auto row = staging.subspan(header_bytes_ + s * width * sizeof(int32_t), bytes);
    std::memcpy(row.data(), known, bytes);
    const auto target = block_table_.slice_rows(static_cast<int32_t>(s), 1);
    device.copy_in_async({target.data, bytes}, row);
  }
}

void StepBuffers::fill_all_rows(Device& device, const Slice& slice) {
  const StepShape shape{slice.count, 1, slice.count};
  staging_index_ = 1 - staging_index_;
  write_rows(std::span(&slice, 1), shape);
  write_sequences(std::span(&slice, 1), shape);
  for (int32_t r = 0; r < slice.count; ++r) staged(sample_rows_)[r] = r;
  upload(device, std::span(&slice, 1));
}

StepInputs StepBuffers::inputs(const StepShape& shape) const {
  return {.tokens = tokens_.slice_rows(0, shape.rows),
          .positions = positions_.slice_rows(0, shape.rows),
          .seq_of_row = seq_of_row_.slice_rows(0, shape.rows),
          .seqs = {.row_first = row_first_.slice_rows(0, shape.seqs),
                   .row_count = row_count_.slice_rows(0, shape.seqs),
                   .state_slot = state_slot_.slice_rows(0, shape.seqs),
                   .fresh = fresh_.slice_rows(0, shape.seqs)},
          .sample_rows = sample_rows_.slice_rows(0, shape.samples)};
}

ops::TakeTokens StepBuffers::take_tokens_op(const StepShape& shape) const {
  return {.tokens = tokens_.slice_rows(0, shape.rows),
          .source = source_.slice_rows(0, shape.rows),
          .drawn = next_tokens_};
}

ops::Sample StepBuffers::sample_op(const StepShape& shape, int32_t vocab_limit) const {
  const auto bytes = shape.samples * static_cast<int32_t>(sizeof(ops::SampleRow));
  return {.logits = logits(shape.samples),
          .rows = sample_params_.slice_rows(0, bytes),
          .history = history_,
          .bias = bias_,
          .vocab_limit = vocab_limit,
          .next_token = next_tokens_.slice_rows(0, shape.samples)};
}

}  // namespace exode
