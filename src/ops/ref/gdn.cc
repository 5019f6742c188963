// Reference Gated DeltaNet: the plain recurrence in double precision.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/gdn_parts.h"
#include "ops/ref/access.h"
#include "ops/ref/ref.h"

namespace exode::ref {
namespace {

using Vector = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// [rows before the slice ‖ rows of the slice] of one channel; index 0 is the oldest tail entry.
double conv_input(const ops::CausalConv& op, int32_t slot, int32_t first, int32_t i,
                  int32_t channel) {
  const int32_t tail = op.state.conv_tail.shape.dim[1];
  const int32_t channels = op.x.cols();
  if (i >= tail) return load(op.x, first + i - tail, channel);
  return load(op.state.conv_tail, slot, int64_t{i} * channels + channel);
}

void conv_sequence(const ops::CausalConv& op, int32_t s) {
  const int32_t first = index_at(op.seqs.row_first, s), count = index_at(op.seqs.row_count, s);
  const int32_t slot = index_at(op.seqs.state_slot, s);
  const bool fresh = index_at(op.seqs.fresh, s) != 0;
  const int32_t width = op.weight.cols(), tail = width - 1;
  for (int32_t c = 0; c < op.x.cols(); ++c) {
    Vector u(static_cast<size_t>(tail + count));
    for (int32_t i = 0; i < tail + count; ++i) {
      u[static_cast<size_t>(i)] = fresh && i < tail ? 0 : conv_input(op, slot, first, i, c);
    }
    for (int32_t t = 0; t < count; ++t) {
      double sum = 0;
      for (int32_t j = 0; j < width; ++j)
        sum += load(op.weight, c, j) * u[static_cast<size_t>(t + j)];
      store(op.out, first + t, c, sum * sigmoid(sum));
    }
    for (int32_t i = 0; i < tail; ++i) {
      store(op.state.conv_tail, slot, int64_t{i} * op.x.cols() + c,
            u[static_cast<size_t>(count + i)]);
    }
  }
}

Vector unit_head(const ConstTensorView& qkv, int32_t row, int32_t first, int32_t dim) {
  Vector v(static_cast<size_t>(dim));
  double sum = 0;
  for (int32_t i = 0; i < dim; ++i) {
    v[static_cast<size_t>(i)] = load(qkv, row, first + i);
    sum += v[static_cast<size_t>(i)] * v[static_cast<size_t>(i)];
  }
  const double scale = 1 / std::sqrt(sum + 1e-6);
  for (double& x : v) x *= scale;
  return v;
}

// S is [value][key].
void delta_row(const ops::GatedDelta& op, int32_t row, int32_t head, Vector& state) {
  const GdnShape& s = op.shape;
  const int32_t key_head = head / (s.value_heads / s.key_heads);
  const Vector q = unit_head(op.qkv, row, key_head * s.key_dim, s.key_dim);
  const Vector k = unit_head(op.qkv, row, s.key_width() + key_head * s.key_dim, s.key_dim);
  const double decay = std::exp(load(op.g, row, head)), beta = load(op.beta, row, head);
  const double scale = 1 / std::sqrt(static_cast<double>(s.key_dim));
  for (int32_t v = 0; v < s.value_dim; ++v) {
    double* line = state.data() + int64_t{v} * s.key_dim;
    double predicted = 0, out = 0;
    for (int32_t i = 0; i < s.key_dim; ++i) {
      line[i] *= decay;
      predicted += line[i] * k[static_cast<size_t>(i)];
    }
    const double value = load(op.qkv, row, 2 * s.key_width() + head * s.value_dim + v);
    const double delta = beta * (value - predicted);
    for (int32_t i = 0; i < s.key_dim; ++i) {
      line[i] += delta * k[static_cast<size_t>(i)];
      out += line[i] * q[static_cast<size_t>(i)] * scale;
    }
    store(op.out, row, head * s.value_dim + v, out);
  }
}

}  // namespace

void launch(Stream&, const ops::CausalConv& op, Scratch) {
  for (int32_t s = 0; s < op.seqs.seqs(); ++s) conv_sequence(op, s);
}

void launch(Stream&, const ops::GdnGates& op, Scratch) {
  for (int32_t r = 0; r < op.a.rows(); ++r) {
    for (int32_t h = 0; h < op.a.cols(); ++h) {
      const double x = load(op.a, r, h) + load(op.dt_bias, h, 0);
      const double softplus = x > 20 ? x : std::log1p(std::exp(x));
      store(op.g, r, h, -std::exp(load(op.a_log, h, 0)) * softplus);
      store(op.beta, r, h, sigmoid(load(op.b, r, h)));
    }
  }
}

void launch(Stream&, const ops::GatedDelta& op, Scratch) {
  const GdnShape& shape = op.shape;
  const int64_t size = int64_t{shape.value_dim} * shape.key_dim;
  for (int32_t s = 0; s < op.seqs.seqs(); ++s) {
    const int32_t first = index_at(op.seqs.row_first, s), count = index_at(op.seqs.row_count, s);
    const int32_t slot = index_at(op.seqs.state_slot, s);
    if (count == 0) continue;
    for (int32_t h = 0; h < shape.value_heads; ++h) {
      Vector state(static_cast<size_t>(size));
      for (int64_t i = 0; i < size && index_at(op.seqs.fresh, s) == 0; ++i) {
        state[static_cast<size_t>(i)] = load(op.state.base, slot, h * size + i);
      }
      for (int32_t t = 0; t < count; ++t) delta_row(op, first + t, h, state);
      for (int64_t i = 0; i < size; ++i)
        store(op.state.base, slot, h * size + i, state[static_cast<size_t>(i)]);
    }
  }
}

void launch(Stream&, const ops::GatedRmsNorm& op, Scratch) {
  const int32_t dim = op.weight.rows();
  for (int32_t r = 0; r < op.x.rows(); ++r) {
    for (int32_t first = 0; first < op.x.cols(); first += dim) {
      double sum = 0;
      for (int32_t i = 0; i < dim; ++i) sum += load(op.x, r, first + i) * load(op.x, r, first + i);
      const double scale = 1 / std::sqrt(sum / dim + op.eps);
      for (int32_t i = 0; i < dim; ++i) {
        const double gate = load(op.gate, r, first + i);
        store(op.out, r, first + i,
              load(op.weight, i, 0) * load(op.x, r, first + i) * scale * gate * sigmoid(gate));
      }
    }
  }
}

size_t scratch_bytes(const DeviceCaps&, const ops::GatedDeltaNet& op) {
  return ops::GatedDeltaNetMemory(op).bytes();
}

void launch(Stream& stream, const ops::GatedDeltaNet& op, Scratch scratch) {
  const ops::GatedDeltaNetParts parts = ops::parts_of(op, scratch.data());
  launch(stream, parts.conv, {});
  launch(stream, parts.gates, {});
  launch(stream, parts.delta, {});
  launch(stream, parts.norm, {});
}

}  // namespace exode::ref
