// The fixed device buffers that carry a step's inputs and outputs, and the host code that fills
// them. Addresses never change after construction, so that a captured step can be replayed.
//
// Inputs travel in one copy, in stream order, from pinned memory: two sets of it, because the host
// fills the inputs of a step while the step before still runs.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "device/arena.h"
#include "engine/scheduler.h"
#include "model/model.h"
#include "ops/sample.h"

namespace exode {

struct StepLimits {
  int32_t rows = 0;  // of one step
  int32_t seqs = 0;
  int32_t samples = 0;  // rows that may need logits at once
  int32_t blocks_per_seq = 0;
  int32_t vocab = 0;
  int32_t context_max = 0;
};

// What kernels see of a step; what the slices do not fill is padding.
struct StepShape {
  int32_t rows = 0, seqs = 0, samples = 0;
  auto operator<=>(const StepShape&) const = default;
};
StepShape shape_of(std::span<const Slice> slices);  // without padding

class StepBuffers {
 public:
  // Takes everything from `arena`; with a counting arena this measures the line of the plan.
  StepBuffers(const StepLimits& limits, Arena& arena);
  Status allocate_staging(Device& device);

  // Brings the slices to the device. More than the limits, or than `shape`, is our bug.
  void fill(Device& device, std::span<const Slice> slices, const StepShape& shape);
  // Teacher forcing: every row of the single slice wants its logits and nothing is sampled.
  void fill_all_rows(Device& device, const Slice& slice);

  StepInputs inputs(const StepShape& shape) const;
  TensorView logits(int32_t samples) const { return logits_.slice_rows(0, samples); }
  ops::TakeTokens take_tokens_op(const StepShape& shape) const;
  ops::Sample sample_op(const StepShape& shape, int32_t vocab_limit) const;
  ConstTensorView block_table() const { return block_table_; }
  TensorView next_tokens() const { return next_tokens_; }

 private:
  void write_rows(std::span<const Slice> slices, const StepShape& shape);
  void write_sequences(std::span<const Slice> slices, const StepShape& shape);
  void write_samples(Device& device, std::span<const Slice> slices, const StepShape& shape);
  void upload(Device& device, std::span<const Slice> slices);
  void upload_list(Device& device, const TensorView& target, std::span<const std::byte> host);
  template <class T = int32_t>
  T* staged(const TensorView& target) const;

  StepLimits limits_;
  TensorView tokens_, positions_, seq_of_row_, source_;
  TensorView row_first_, row_count_, state_slot_, fresh_;
  TensorView sample_rows_, sample_params_;
  size_t header_bytes_ = 0;  // from tokens_ to here
  TensorView block_table_, history_, bias_, logits_, next_tokens_;

  std::array<Buffer, 2> staging_;  // the header, then the block table
  size_t staging_index_ = 0;
  std::vector<int32_t> device_table_;  // what the device's block table holds
  std::vector<ops::TokenCount> host_history_;
  std::vector<ops::TokenBias> host_bias_;
};

inline constexpr int32_t kLogitBiasMax = 1024;  // entries of one request

}  // namespace exode
