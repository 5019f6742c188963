// Experts on the CPU: rows are grouped by expert, so that each expert's weights are read once per
// step; the matmul kernel gives every row the bits it would get alone.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/matmul_kernel.h"

namespace exode::cpu {
namespace {

// Scratch, in floats. Every (row, expert) pair has a place, sorted by expert.
struct Layout {
  size_t pairs, x, gate_up, act, result, decoded, total;
  size_t x_width, act_width;

  Layout(const ops::MoeExperts& op, int32_t threads) {
    pairs = static_cast<size_t>(op.x.rows()) * static_cast<size_t>(op.ids.cols());
    x_width = static_cast<size_t>(padded_cols(op.x.cols()));
    act_width = static_cast<size_t>(padded_cols(op.down.cols));
    x = 0;
    gate_up = x + pairs * x_width;
    act = gate_up + pairs * 2 * static_cast<size_t>(op.down.cols);
    result = act + pairs * act_width;
    decoded = result + pairs * static_cast<size_t>(op.x.cols());
    total = decoded + static_cast<size_t>(threads) * kDecodedRows * std::max(x_width, act_width);
  }
};

void activate(const float* gate_up, float* act, int32_t inner, size_t act_width) {
  for (int32_t i = 0; i < inner; ++i)
    act[i] = gate_up[i] / (1.0f + std::exp(-gate_up[i])) * gate_up[inner + i];
  std::fill(act + inner, act + act_width, 0.0f);
}

// Pairs [first, first + count) all use `expert`.
void run_expert(ThreadPool& pool, const ops::MoeExperts& op, const Layout& l, float* memory,
                int32_t expert, size_t first, int32_t count) {
  const int32_t inner = op.down.cols, hidden = op.x.cols();
  const WeightView gate_up = op.gate_up.slice_rows(expert * 2 * inner, 2 * inner);
  const WeightView down = op.down.slice_rows(expert * hidden, hidden);
  float* projected = memory + l.gate_up + first * 2 * static_cast<size_t>(inner);
  float* act = memory + l.act + first * l.act_width;
  matmul_all(pool, {.w = &gate_up,
                    .x = memory + l.x + first * l.x_width,
                    .x_stride = static_cast<int64_t>(l.x_width),
                    .rows = count,
                    .out = projected,
                    .out_stride = 2 * int64_t{inner},
                    .decoded = memory + l.decoded});
  for (int32_t i = 0; i < count; ++i) {
    activate(projected + int64_t{i} * 2 * inner, act + static_cast<size_t>(i) * l.act_width, inner,
             l.act_width);
  }
  matmul_all(pool, {.w = &down,
                    .x = act,
                    .x_stride = static_cast<int64_t>(l.act_width),
                    .rows = count,
                    .out = memory + l.result + first * static_cast<size_t>(hidden),
                    .out_stride = hidden,
                    .decoded = memory + l.decoded});
}

}  // namespace

size_t scratch_bytes(const DeviceCaps& caps, const ops::MoeExperts& op) {
  const Layout l(op, caps.multiprocessors);
  return l.total * sizeof(float) + l.pairs * sizeof(int32_t);
}

void launch(Stream&, const ops::MoeRoute& op, Scratch) {
  const int32_t experts = op.logits.cols(), top_k = op.ids.cols();
  for (int32_t r = 0; r < op.logits.rows(); ++r) {
    const float* logits = op.logits.row<float>(r);
    int32_t* ids = op.ids.row<int32_t>(r);
    float* weights = op.weights.row<float>(r);
    int32_t count = 0;
    for (int32_t e = 0; e < experts; ++e) {  // insertion keeps ties at the lower id
      int32_t at = count;
      while (at > 0 && logits[e] > logits[ids[at - 1]]) --at;
      if (at == top_k) continue;
      count = std::min(count + 1, top_k);
      for (int32_t j = count - 1; j > at; --j) ids[j] = ids[j - 1];
      ids[at] = e;
    }
    const float peak = logits[ids[0]];
    float sum = 0;
    for (int32_t j = 0; op.normalize && j < top_k; ++j) sum += std::exp(logits[ids[j]] - peak);
    for (int32_t e = 0; !op.normalize && e < experts; ++e) sum += std::exp(logits[e] - peak);
    for (int32_t j = 0; j < top_k; ++j) weights[j] = std::exp(logits[ids[j]] - peak) / sum;
  }
}

void launch(Stream& stream, const ops::MoeExperts& op, Scratch scratch) {
  EXODE_CHECK(op.x.dtype == DType::kF32 && op.out.dtype == DType::kF32,
              "cpu kernels take f32 activations");
  const int32_t rows = op.x.rows(), top_k = op.ids.cols(), hidden = op.x.cols();
  const Layout l(op, stream.pool().size());
  auto* memory = reinterpret_cast<float*>(scratch.data());
  auto* place = reinterpret_cast<int32_t*>(memory + l.total);  // of (row, choice) among the pairs

  size_t next = 0;
  for (int32_t e = 0; e < op.experts; ++e) {
    const size_t first = next;
    for (int32_t r = 0; r < rows; ++r) {
      for (int32_t j = 0; j < top_k; ++j) {
        if (op.ids.row<int32_t>(r)[j] != e) continue;
        place[int64_t{r} * top_k + j] = static_cast<int32_t>(next);
        pad_rows(op.x.row<float>(r), op.x.row_stride, 1, hidden, memory + l.x + next * l.x_width);
        ++next;
      }
    }
    if (next > first)
      run_expert(stream.pool(), op, l, memory, e, first, static_cast<int32_t>(next - first));
  }
  for (int32_t r = 0; r < rows; ++r) {
    float* out = op.out.row<float>(r);
    std::fill(out, out + hidden, 0.0f);
    for (int32_t j = 0; j < top_k; ++j) {
      const float weight = op.weights.row<float>(r)[j];
      const float* result =
          memory + l.result +
          static_cast<size_t>(place[int64_t{r} * top_k + j]) * static_cast<size_t>(hidden);
      for (int32_t c = 0; c < hidden; ++c) out[c] += weight * result[c];
    }
  }
}

}  // namespace exode::cpu
