// Experts on the CPU: rows are grouped by expert, so that each expert's weights are read once per
// step; the matmul kernel gives every row the bits it would get alone.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/matmul_kernel.h"
#include "ops/shared_expert.h"

namespace exode::cpu {
namespace {

// Scratch. Every (row, expert) pair has a place; places are sorted by expert.
struct Layout {
  size_t pairs, x_width, act_width;        // widths padded as the matmul kernel wants them
  size_t fixed;                            // bytes before all floats
  size_t x, gate_up, act, result, matmul;  // offsets in floats
  size_t place, first, ints;               // offsets in ints, after all floats
  size_t floats;

  Layout(const ops::MoeExperts& op, int32_t threads) {
    const auto hidden = static_cast<size_t>(op.x.cols());
    const auto inner = static_cast<size_t>(op.down.cols);
    pairs = static_cast<size_t>(op.x.rows()) * static_cast<size_t>(op.ids.cols());
    x_width = static_cast<size_t>(padded_cols(op.x.cols()));
    act_width = static_cast<size_t>(padded_cols(op.down.cols));
    const auto most = static_cast<int32_t>(pairs);
    fixed = std::max(fixed_bytes(op.gate_up, most, threads), fixed_bytes(op.down, most, threads));
    matmul = 0;
    x = static_cast<size_t>(threads) * kScratchFloats;
    act = x + pairs * x_width;
    gate_up = act + pairs * act_width;
    result = gate_up + pairs * 2 * inner;
    floats = result + pairs * hidden;
    place = 0;
    first = place + pairs;
    ints = first + static_cast<size_t>(op.experts) + 1;
  }
};

struct Experts {
  ThreadPool& pool;
  const ops::MoeExperts& op;
  Layout layout;
  FixedSegment* fixed;
  float* floats;
  int32_t* place;  // [rows · top_k] of (row, choice)
  int32_t* first;  // [experts + 1] first place of each expert
  bool fast;

  int32_t hidden() const { return op.x.cols(); }
  int32_t inner() const { return op.down.cols; }
  float* act(int32_t at) const {
    return floats + layout.act + static_cast<size_t>(at) * layout.act_width;
  }
  float* input(int32_t at) const {
    return floats + layout.x + static_cast<size_t>(at) * layout.x_width;
  }
  float* projected(int32_t at) const {
    return floats + layout.gate_up + static_cast<size_t>(at) * 2 * static_cast<size_t>(inner());
  }
  float* result(int32_t at) const {
    return floats + layout.result + static_cast<size_t>(at) * static_cast<size_t>(hidden());
  }
  int32_t expert_of(int32_t pair) const {
    const int32_t top_k = op.ids.cols();
    return op.ids.row<int32_t>(pair / top_k)[pair % top_k];
  }

  void sort_pairs() const {
    const auto pairs = static_cast<int32_t>(layout.pairs);
    std::fill(first, first + op.experts + 1, 0);
    for (int32_t pair = 0; pair < pairs; ++pair) {
      const int32_t e = expert_of(pair);
      EXODE_CHECK(e >= 0 && e < op.experts, "moe_experts: no expert " + std::to_string(e));
      ++first[e + 1];
    }
    for (int32_t e = 0; e < op.experts; ++e) first[e + 1] += first[e];
    // Taking places moves the starts one expert on; moving them back restores them.
    for (int32_t pair = 0; pair < pairs; ++pair) place[pair] = first[expert_of(pair)]++;
    for (int32_t e = op.experts; e > 0; --e) first[e] = first[e - 1];
    first[0] = 0;
  }

  void gather() const {
    pool.parallel_for(static_cast<int32_t>(layout.pairs), 8, [&](int32_t begin, int32_t end) {
      for (int32_t pair = begin; pair < end; ++pair) {
        pad_rows(op.x.row<float>(pair / op.ids.cols()), op.x.row_stride, 1, hidden(),
                 input(place[pair]));
      }
    });
  }

  void activate(int32_t at) const {
    const float* gate = projected(at);
    const float* up = gate + inner();
    float* out = act(at);
    for (int32_t i = 0; i < inner(); ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    std::fill(out + inner(), out + layout.act_width, 0.0f);
  }

  void run(int32_t expert) const {
    const int32_t begin = first[expert], count = first[expert + 1] - begin;
    if (count == 0) return;
    const WeightView gate_up = op.gate_up.slice_rows(expert * 2 * inner(), 2 * inner());
    const WeightView down = op.down.slice_rows(expert * hidden(), hidden());
    matmul_all(pool, {.w = &gate_up,
                      .x = input(begin),
                      .x_stride = static_cast<int64_t>(layout.x_width),
                      .rows = count,
                      .out = projected(begin),
                      .out_stride = 2 * int64_t{inner()},
                      .scratch = floats + layout.matmul,
                      .fixed = fixed,
                      .fast = fast});
    pool.parallel_for(count, 8, [&](int32_t from, int32_t to) {
      for (int32_t i = from; i < to; ++i) activate(begin + i);
    });
    matmul_all(pool, {.w = &down,
                      .x = act(begin),
                      .x_stride = static_cast<int64_t>(layout.act_width),
                      .rows = count,
                      .out = result(begin),
                      .out_stride = hidden(),
                      .scratch = floats + layout.matmul,
                      .fixed = fixed,
                      .fast = fast});
  }

  void combine() const {
    const int32_t top_k = op.ids.cols();
    pool.parallel_for(op.x.rows(), 8, [&](int32_t begin, int32_t end) {
      for (int32_t r = begin; r < end; ++r) {
        float* out = op.out.row<float>(r);
        std::fill(out, out + hidden(), 0.0f);
        for (int32_t j = 0; j < top_k; ++j) {
          const float weight = op.weights.row<float>(r)[j];
          const float* from = result(place[r * top_k + j]);
          for (int32_t c = 0; c < hidden(); ++c) out[c] += weight * from[c];
        }
      }
    });
  }
};

size_t shared_scratch_bytes(const DeviceCaps& caps, const ops::MoeExperts& op) {
  if (op.shared.empty()) return 0;
  const ops::SharedExpertOps shared = ops::shared_expert_ops(op, nullptr);
  return ops::shared_expert_bytes(op) +
         std::max(scratch_bytes(caps, shared.gate_up), scratch_bytes(caps, shared.down));
}

void add_shared(Stream& stream, const ops::MoeExperts& op, Scratch scratch, bool fast) {
  const ops::SharedExpertOps shared = ops::shared_expert_ops(op, scratch.data());
  const Scratch rest = scratch.subspan(ops::shared_expert_bytes(op));
  if (fast) {
    launch_fast(stream, shared.gate_up, rest);
    launch_fast(stream, shared.down, rest);
  } else {
    launch(stream, shared.gate_up, rest);
    launch(stream, shared.down, rest);
  }
  launch(stream, shared.add, {});
}

}  // namespace

size_t scratch_bytes(const DeviceCaps& caps, const ops::MoeExperts& op) {
  const Layout l(op, caps.multiprocessors);
  // The shared expert runs after the others and takes their place.
  return std::max(l.fixed + l.floats * sizeof(float) + l.ints * sizeof(int32_t),
                  shared_scratch_bytes(caps, op));
}

void launch(Stream&, const ops::MoeRoute& op, Scratch) {
  require_f32({op.logits});
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

namespace {

void run_experts(Stream& stream, const ops::MoeExperts& op, Scratch scratch, bool fast) {
  require_f32({op.x, op.out});
  const Layout layout(op, stream.pool().size());
  auto* floats = reinterpret_cast<float*>(scratch.data() + layout.fixed);
  auto* ints = reinterpret_cast<int32_t*>(floats + layout.floats);
  const Experts experts{stream.pool(),
                        op,
                        layout,
                        reinterpret_cast<FixedSegment*>(scratch.data()),
                        floats,
                        ints + layout.place,
                        ints + layout.first,
                        fast};
  experts.sort_pairs();
  experts.gather();
  for (int32_t e = 0; e < op.experts; ++e) experts.run(e);
  experts.combine();
  if (!op.shared.empty()) add_shared(stream, op, scratch, fast);
}

}  // namespace

void launch(Stream& stream, const ops::MoeExperts& op, Scratch scratch) {
  run_experts(stream, op, scratch, false);
}
void launch_fast(Stream& stream, const ops::MoeExperts& op, Scratch scratch) {
  run_experts(stream, op, scratch, true);
}

}  // namespace exode::cpu
