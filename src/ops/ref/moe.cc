// Reference mixture of experts: one row, one expert at a time.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/ref/access.h"
#include "ops/ref/ref.h"
#include "ops/shared_expert.h"

namespace exode::ref {

void launch(Stream&, const ops::MoeRoute& op, Scratch) {
  const int32_t experts = op.logits.cols(), top_k = op.ids.cols();
  for (int32_t r = 0; r < op.logits.rows(); ++r) {
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return load(op.logits, r, a) > load(op.logits, r, b);
    });
    const double peak = load(op.logits, r, order[0]);
    double sum = 0;
    for (int32_t j = 0; j < (op.normalize ? top_k : experts); ++j) {
      sum += std::exp(load(op.logits, r, order[static_cast<size_t>(j)]) - peak);
    }
    for (int32_t j = 0; j < top_k; ++j) {
      const int32_t id = order[static_cast<size_t>(j)];
      store(op.ids, r, j, id);
      store(op.weights, r, j, std::exp(load(op.logits, r, id) - peak) / sum);
    }
  }
}

void launch(Stream& stream, const ops::MoeExperts& op, Scratch) {
  const int32_t hidden = op.x.cols(), inner = op.down.cols;
  for (int32_t r = 0; r < op.x.rows(); ++r) {
    std::vector<double> out(static_cast<size_t>(hidden));
    for (int32_t j = 0; j < op.ids.cols(); ++j) {
      const int32_t e = static_cast<int32_t>(load(op.ids, r, j));
      std::vector<double> act(static_cast<size_t>(inner));
      for (int32_t i = 0; i < inner; ++i) {
        double gate = 0, up = 0;
        for (int32_t k = 0; k < hidden; ++k) {
          gate += load(op.x, r, k) * weight_at(op.gate_up, int64_t{e} * 2 * inner + i, k);
          up += load(op.x, r, k) * weight_at(op.gate_up, int64_t{e} * 2 * inner + inner + i, k);
        }
        act[static_cast<size_t>(i)] = gate / (1 + std::exp(-gate)) * up;
      }
      for (int32_t n = 0; n < hidden; ++n) {
        double sum = 0;
        for (int32_t i = 0; i < inner; ++i) {
          sum += act[static_cast<size_t>(i)] * weight_at(op.down, int64_t{e} * hidden + n, i);
        }
        out[static_cast<size_t>(n)] += load(op.weights, r, j) * sum;
      }
    }
    for (int32_t n = 0; n < hidden; ++n) store(op.out, r, n, out[static_cast<size_t>(n)]);
  }
  if (op.shared.empty()) return;
  std::vector<std::byte> memory(ops::shared_expert_bytes(op));
  const ops::SharedExpertOps shared = ops::shared_expert_ops(op, memory.data());
  launch(stream, shared.gate_up, {});
  launch(stream, shared.down, {});
  launch(stream, shared.add, {});
}

}  // namespace exode::ref
