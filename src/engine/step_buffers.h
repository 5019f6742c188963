// The fixed device buffers that carry a step's inputs and outputs, and the host code that fills
// them. Addresses never change after construction, so that a captured step can be replayed.
#pragma once

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

class StepBuffers {
 public:
  // Takes everything from `arena`; with a counting arena this measures the line of the plan.
  StepBuffers(const StepLimits& limits, Arena& arena);

  // Writes the slices to the device. Slices with more rows than the limits are our bug.
  void fill(Device& device, std::span<const Slice> slices);
  // Teacher forcing: every row of the single slice wants its logits and nothing is sampled.
  void fill_all_rows(Device& device, const Slice& slice);

  // Views cut to what fill() wrote; for planning, to the given counts.
  StepInputs inputs() const { return inputs_for(rows_, seqs_, samples_); }
  StepInputs inputs_for(int32_t rows, int32_t seqs, int32_t samples) const;
  TensorView logits(int32_t samples) const { return logits_.slice_rows(0, samples); }
  ops::Sample sample_op(int32_t samples, int32_t vocab_limit) const;
  int32_t samples() const { return samples_; }
  ConstTensorView block_table() const { return block_table_; }
  TensorView next_tokens() const { return next_tokens_; }

 private:
  void write_slices(Device& device, std::span<const Slice> slices);
  void write_sampling(Device& device, std::span<const Slice> slices);
  void upload(Device& device, const TensorView& target, std::span<const std::byte> host);

  StepLimits limits_;
  int32_t rows_ = 0, seqs_ = 0, samples_ = 0;
  TensorView tokens_, positions_, seq_of_row_;
  TensorView row_first_, row_count_, state_slot_, fresh_, block_table_;
  TensorView sample_rows_, logits_, next_tokens_;
  TensorView sample_params_, history_, bias_;
  std::vector<int32_t> host_;  // staging for i32 columns
  std::vector<ops::TokenCount> host_history_;
  std::vector<ops::TokenBias> host_bias_;
  std::vector<ops::SampleRow> host_params_;
};

inline constexpr int32_t kLogitBiasMax = 1024;  // entries of one request

}  // namespace exode
