// --self-test: every recorded step must give the bits that running it gives.
#include <fmt/format.h>

#include <algorithm>

#include "engine/runner.h"

namespace exode {
namespace {

constexpr int32_t kSteps = 3;  // of each shape: a fresh state, then ones with a past

std::vector<Sequence> test_sequences(int32_t count, int32_t vocab) {
  std::vector<Sequence> sequences(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    Sequence& s = sequences[static_cast<size_t>(i)];
    for (int32_t t = 0; t < kSteps; ++t) s.tokens.push_back((31 * i + 7 * t + 1) % vocab);
    s.sampling.temperature = static_cast<float>(i % 2);
    s.sampling.seed = static_cast<uint64_t>(i);
    s.blocks = {BlockId{i}};
    s.slot = SlotId{i};
  }
  return sequences;
}

}  // namespace

std::vector<std::byte> ModelRunner::trace(const StepShape& shape,
                                          const std::function<void()>& step) {
  const int32_t slots = model_->spec().state ? plan_.state_slots : shape.rows;
  const int32_t blocks = model_->spec().kv_groups.empty() ? shape.rows : plan_.kv_blocks;
  std::vector<Sequence> sequences =
      test_sequences(std::min({shape.rows, slots, blocks}), model_->spec().vocab);
  std::vector<std::byte> bits;
  const auto keep = [&](const std::byte* data, size_t bytes) {
    bits.resize(bits.size() + bytes);
    device_->copy_out(std::span(bits).last(bytes), {data, bytes});
  };
  const size_t samples = sequences.size();
  for (int32_t t = 0; t < kSteps; ++t) {
    std::vector<Slice> slices;
    for (Sequence& s : sequences) {
      slices.push_back({.sequence = &s, .first = t, .count = 1, .samples = true});
    }
    buffers_->fill(*device_, slices, shape);
    step();
    const TensorView logits = buffers_->logits(shape.samples);
    keep(logits.data, samples * static_cast<size_t>(logits.cols()) * sizeof(float));
    keep(buffers_->next_tokens().data, samples * sizeof(TokenId));
  }
  return bits;
}

Status ModelRunner::self_test() {
  for (const auto& [shape, graph] : graphs_) {
    const auto eager = trace(shape, [&] { run(shape); });
    if (eager != trace(shape, [&] { graph->replay(); })) {
      return unsupported(fmt::format(
          "self-test: the recorded step of {} rows does not give the bits of the same step run "
          "directly; start with --eager, and please report the device and driver",
          shape.rows));
    }
  }
  facts_.self_test = fmt::format("{} recorded steps give the bits of direct ones", graphs_.size());
  return Done{};
}

}  // namespace exode
