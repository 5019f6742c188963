// The profiling half of the runner: steps whose ops are timed one by one.
#include <algorithm>

#include "engine/runner.h"

namespace exode {
namespace {

struct Listed {
  std::string_view op;
  Cost cost;
};

// Notes every op; with a clock also when it ended.
class OpTrace final : public Trace {
 public:
  explicit OpTrace(StreamClock* clock) : clock_(clock) {}
  void add(std::string_view op, const Cost& cost) override {
    if (clock_ != nullptr) clock_->mark();
    ops.push_back({op, cost});
  }
  std::vector<Listed> ops;

 private:
  StreamClock* clock_;
};

// What the events around an op cost themselves: the usual time between two with nothing between.
double empty_interval(Device& device) {
  constexpr size_t kMarks = 65;
  const auto clock = device.clock(kMarks);
  for (size_t i = 0; i < kMarks; ++i) clock->mark();
  std::vector<double> seconds = clock->intervals();
  const auto middle = seconds.begin() + static_cast<int64_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace

// The op's own cost is an upper bound: it knows the size of the block table, not the lengths.
Cost ModelRunner::attention_cost(const Cost& bound, std::span<const Slice> slices) const {
  const KvGeometry& group = spec().kv_groups[0];
  const size_t block =
      format_->block_bytes({.layers = 1, .heads = group.heads, .head_dim = group.head_dim});
  const auto table_blocks = static_cast<uint64_t>(buffers_->block_table().cols());
  const uint64_t table_tokens = table_blocks * kKvBlock;
  uint64_t blocks = 0, pairs = 0, rows = 0;
  for (const Slice& slice : slices) {
    const auto first = static_cast<uint64_t>(slice.first);
    const auto count = static_cast<uint64_t>(slice.count);
    blocks += static_cast<uint64_t>(blocks_for_tokens(slice.first + slice.count));
    pairs += count * first + count * (count + 1) / 2;
    rows += count;
  }
  return {.bytes = bound.bytes - block * table_blocks + block * blocks,
          .flops = bound.flops / std::max<uint64_t>(table_tokens * rows, 1) * pairs};
}

std::vector<OpTime> ModelRunner::profile(std::span<const Slice> slices) {
  const StepShape shape = padded(shape_of(slices), is_decode(slices));
  buffers_->fill(*device_, slices, shape);
  OpTrace listing(nullptr);
  run(shape, &listing);  // and warms up what a first launch sets up
  device_->synchronize();
  const double empty = empty_interval(*device_);
  const auto clock = device_->clock(listing.ops.size() + 1);
  OpTrace timing(clock.get());
  clock->mark();
  run(shape, &timing);
  const std::vector<double> seconds = clock->intervals();
  std::vector<OpTime> times;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const auto& [op, cost] = timing.ops[i];
    times.push_back({.op = op,
                     .cost = op == name(kv::Attend{}) ? attention_cost(cost, slices) : cost,
                     .seconds = std::max(seconds[i] - empty, 0.0)});
  }
  return times;
}

}  // namespace exode
