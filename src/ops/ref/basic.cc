// Reference kernels of the row-wise ops: double precision, one obvious loop each.
#include <cmath>
#include <vector>

#include "ops/ref/access.h"
#include "ops/ref/ref.h"

namespace exode::ref {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

void normalize_row(const ConstTensorView& x, const ConstTensorView& weight, const TensorView& out,
                   int64_t row, const double eps, const double bias) {
  const int32_t width = x.cols();
  double sum = 0;
  for (int32_t c = 0; c < width; ++c) sum += load(x, row, c) * load(x, row, c);
  const double scale = 1 / std::sqrt(sum / width + eps);
  for (int32_t c = 0; c < width; ++c) {
    store(out, row, c, load(x, row, c) * scale * (load(weight, c, 0) + bias));
  }
}

}  // namespace

void launch(Stream&, const ops::Embedding& op, Scratch) {
  for (int32_t r = 0; r < op.out.rows(); ++r) {
    const int32_t token = index_at(op.tokens, r);
    for (int32_t c = 0; c < op.out.cols(); ++c) {
      store(op.out, r, c, token < 0 ? 0 : weight_at(op.table, token, c) * op.scale);
    }
  }
}

void launch(Stream&, const ops::TakeTokens& op, Scratch) {
  auto* tokens = op.tokens.row<int32_t>(0);
  for (int32_t r = 0; r < op.source.rows(); ++r) {
    const int32_t source = op.source.row<int32_t>(0)[r];
    if (source >= 0) tokens[r] = op.drawn.row<int32_t>(0)[source];
  }
}

void launch(Stream&, const ops::RmsNorm& op, Scratch) {
  for (int32_t r = 0; r < op.x.rows(); ++r) {
    normalize_row(op.x, op.weight, op.out, r, op.eps, op.weight_bias);
  }
}

void launch(Stream& stream, const ops::AddRmsNorm& op, Scratch scratch) {
  launch(stream, ops::Add{.x = op.residual, .delta = op.delta}, scratch);
  for (int32_t r = 0; r < op.out.rows(); ++r) {
    normalize_row(op.residual, op.weight, op.out, r, op.eps, op.weight_bias);
  }
}

void launch(Stream&, const ops::MatMul& op, Scratch) {
  for (int32_t r = 0; r < op.x.rows(); ++r) {
    for (int32_t n = 0; n < op.w.rows; ++n) {
      double sum = 0;
      for (int32_t k = 0; k < op.w.cols; ++k) sum += load(op.x, r, k) * weight_at(op.w, n, k);
      store(op.out, r, n, sum);
    }
  }
}

void launch(Stream&, const ops::MatMulSwiGlu& op, Scratch) {
  const int32_t width = op.out.cols();
  for (int32_t r = 0; r < op.x.rows(); ++r) {
    for (int32_t n = 0; n < width; ++n) {
      double gate = 0, up = 0;
      for (int32_t k = 0; k < op.w.cols; ++k) {
        gate += load(op.x, r, k) * weight_at(op.w, n, k);
        up += load(op.x, r, k) * weight_at(op.w, width + n, k);
      }
      store(op.out, r, n, silu(gate) * up);
    }
  }
}

void launch(Stream&, const ops::SwiGlu& op, Scratch) {
  const int32_t width = op.out.cols();
  for (int32_t r = 0; r < op.out.rows(); ++r) {
    for (int32_t c = 0; c < width; ++c) {
      store(op.out, r, c, silu(load(op.gate_up, r, c)) * load(op.gate_up, r, width + c));
    }
  }
}

void launch(Stream&, const ops::SigmoidGate& op, Scratch) {
  for (int32_t r = 0; r < op.x.rows(); ++r) {
    for (int32_t c = 0; c < op.x.cols(); ++c) {
      store(op.x, r, c, load(op.x, r, c) * sigmoid(load(op.gate, r, c)));
    }
  }
}

void launch(Stream&, const ops::AddGated& op, Scratch) {
  for (int32_t r = 0; r < op.x.rows(); ++r) {
    const double gate = sigmoid(load(op.gate_logit, r, 0));
    for (int32_t c = 0; c < op.x.cols(); ++c) {
      store(op.out, r, c, load(op.out, r, c) + gate * load(op.x, r, c));
    }
  }
}

void launch(Stream&, const ops::Add& op, Scratch) {
  for (int32_t r = 0; r < op.x.rows(); ++r) {
    for (int32_t c = 0; c < op.x.cols(); ++c) {
      store(op.x, r, c, load(op.x, r, c) + load(op.delta, r, c));
    }
  }
}

void launch(Stream&, const ops::GatherRows& op, Scratch) {
  for (int32_t i = 0; i < op.out.rows(); ++i) {
    const int32_t row = index_at(op.index, i);
    for (int32_t c = 0; c < op.out.cols(); ++c) {
      store(op.out, i, c, row < 0 ? 0 : load(op.x, row, c));
    }
  }
}

namespace {

void norm_rope_head(const ops::QkNormRope& op, const TensorView& x, const ConstTensorView& weight,
                    int32_t row, int32_t first) {
  const int32_t d = op.head_dim;
  double scale = 1;
  if (!weight.empty()) {
    double sum = 0;
    for (int32_t i = 0; i < d; ++i) sum += load(x, row, first + i) * load(x, row, first + i);
    scale = 1 / std::sqrt(sum / d + op.eps);
  }
  std::vector<double> v(static_cast<size_t>(d));
  for (int32_t i = 0; i < d; ++i) {
    const double gain = weight.empty() ? 1 : load(weight, i, 0) + op.weight_bias;
    v[static_cast<size_t>(i)] = load(x, row, first + i) * scale * gain;
  }
  const int32_t half = op.inv_freq.rows();
  for (int32_t j = 0; j < half; ++j) {
    // In f32 by contract: at position 30 000 its rounding moves sin and cos by more than bf16 does.
    const auto position = static_cast<float>(index_at(op.positions, row));
    const double angle = position * static_cast<float>(load(op.inv_freq, j, 0));
    const double cosine = std::cos(angle) * op.rope_scale, sine = std::sin(angle) * op.rope_scale;
    const double a = v[static_cast<size_t>(j)], b = v[static_cast<size_t>(j + half)];
    v[static_cast<size_t>(j)] = a * cosine - b * sine;
    v[static_cast<size_t>(j + half)] = b * cosine + a * sine;
  }
  for (int32_t i = 0; i < d; ++i) store(x, row, first + i, v[static_cast<size_t>(i)]);
}

}  // namespace

void launch(Stream&, const ops::QkNormRope& op, Scratch) {
  for (int32_t r = 0; r < op.q.rows(); ++r) {
    if (index_at(op.positions, r) < 0) continue;
    for (int32_t c = 0; c < op.q.cols(); c += op.head_dim)
      norm_rope_head(op, op.q, op.q_weight, r, c);
    for (int32_t c = 0; c < op.k.cols(); c += op.head_dim)
      norm_rope_head(op, op.k, op.k_weight, r, c);
  }
}

}  // namespace exode::ref
