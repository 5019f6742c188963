// Attention over a zeroed 16-bit cache: drafts at several contexts, and prompts.
#include <algorithm>

#include "cuda/small_ops.h"
#include "kv/kv.h"
#include "kv/pool.h"

namespace exode::bench {
namespace {

constexpr int32_t kHeads = 4, kGroup = 6, kDim = 256;  // one layer of Qwen3.5 27B
constexpr size_t kCacheBytes = size_t{2} << 30;  // copies of a context, so that none is cached

// One sequence of `length` tokens whose last `rows` attend.
class Step {
 public:
  Step(Lab& lab, const KvFormat& format, int32_t length, int32_t rows)
      : format_(format), blocks_(blocks_for_tokens(length)), rows_(rows) {
    std::vector<int32_t> ints{0, rows};  // row_first, row_count, positions, seq_of_row, table
    for (int32_t r = 0; r < rows; ++r) ints.push_back(length - rows + r);
    ints.resize(ints.size() + static_cast<size_t>(rows), 0);
    for (int32_t b = 0; b < blocks_; ++b) ints.push_back(blocks_ - 1 - b);
    ints_ = lab.upload(ints);
    const auto floats = static_cast<size_t>(rows) * kHeads * kGroup * kDim;
    q_ = lab.uniform(floats, 1, -1, 1);
    gate_ = lab.uniform(floats, 2, -1, 1);
    out_ = lab.take(floats * sizeof(float));
  }
  size_t cache_bytes() const { return block_bytes() * static_cast<size_t>(blocks_); }

  kv::Attend op(std::byte* cache) const {
    const Shape shape{rows_, kHeads * kGroup * kDim};
    return {.cache = {.base = cache,
                      .block_stride = static_cast<int64_t>(block_bytes()),
                      .heads = kHeads,
                      .head_dim = kDim,
                      .block_table = dense_view(at(2 + 2 * rows_), DType::kI32, {1, blocks_}),
                      .format = &format_},
            .q = dense_view(q_.bytes().data(), DType::kF32, shape),
            .out = dense_view(out_.bytes().data(), DType::kF32, shape),
            .positions = dense_view(at(2), DType::kI32, {rows_}),
            .seq_of_row = dense_view(at(2 + rows_), DType::kI32, {rows_}),
            .gate = dense_view(gate_.bytes().data(), DType::kF32, shape),
            .seqs = {.row_first = dense_view(at(0), DType::kI32, {1}),
                     .row_count = dense_view(at(1), DType::kI32, {1}),
                     .state_slot = {},
                     .fresh = {}},
            .scale = 1.0f / 16};
  }

 private:
  size_t block_bytes() const { return format_.block_bytes({1, kHeads, kDim, 0}); }
  std::byte* at(int32_t index) const { return ints_.bytes().data() + 4 * int64_t{index}; }

  const KvFormat& format_;
  int32_t blocks_, rows_;
  Buffer ints_, q_, gate_, out_;
};

}  // namespace

void time_attend(Lab& lab) {
  const Buffer cache = lab.take(kCacheBytes);
  for (const char* name : {"bf16", "f16"}) {
    const KvFormat& format = *find_kv_format(name);
    for (const int32_t length : {128, 1024, 4096, 32768, 131072}) {
      for (const int32_t rows : {1, 2, 4, 8}) {
        const Step step(lab, format, length, rows);
        const size_t bytes = step.cache_bytes();
        const auto copies = static_cast<int>(std::clamp<size_t>(kCacheBytes / bytes, 2, 32));
        const double us = lab.time(copies, [&](int i) {
          lab.run(lab.fast(), step.op(cache.bytes().data() + static_cast<size_t>(i) * bytes));
        });
        fmt::print("time  attend {:<4} context {:>6} {} rows {:>8.1f} us {:>6.0f} GB/s\n", name,
                   length, rows, us, static_cast<double>(bytes) / us / 1e3);
      }
    }
    for (const auto& [length, rows] : {std::pair{2048, 2048}, {32768, 2048}}) {
      const Step step(lab, format, length, rows);
      const double us =
          lab.time(2, [&](int) { lab.run(lab.fast(), step.op(cache.bytes().data())); });
      const double tokens = length - (rows - 1) / 2.0;  // that a row attends to, on average
      fmt::print("time  attend {:<4} prompt of {} rows to {:>6} {:>8.1f} us {:>5.0f} TFLOP/s\n",
                 name, rows, length, us, 4 * tokens * rows * kHeads * kGroup * kDim / us / 1e6);
    }
  }
}

}  // namespace exode::bench
