// Element-wise and per-row CPU kernels: f32 activations, vectors over columns, threads over rows.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/half.h"
#include "ops/cpu/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/rowwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace exode::cpu::HWY_NAMESPACE {

// out = x · rsqrt(mean(x²) + eps) · (weight + bias)
void normalize_row(const float* x, const float* weight, float* out, int32_t width, float eps,
                   float bias) {
  const float scale = 1.0f / std::sqrt(dot(x, x, width) / static_cast<float>(width) + eps);
  const V vscale = hn::Set(D(), scale), vbias = hn::Set(D(), bias);
  for_each_vector(width, [&](int32_t i, auto load, auto store) HWY_ATTR {
    store(out + i, hn::Mul(hn::Mul(load(x + i), vscale), hn::Add(load(weight + i), vbias)));
  });
}

void add_row(float* x, const float* delta, int32_t width) {
  for_each_vector(width, [&](int32_t i, auto load, auto store)
                             HWY_ATTR { store(x + i, hn::Add(load(x + i), load(delta + i))); });
}

void swiglu_row(const float* gate, const float* up, float* out, int32_t width) {
  for_each_vector(width, [&](int32_t i, auto load, auto store) HWY_ATTR {
    store(out + i, hn::Mul(silu(load(gate + i)), load(up + i)));
  });
}

void sigmoid_gate_row(float* x, const float* gate, int32_t width) {
  for_each_vector(width, [&](int32_t i, auto load, auto store) HWY_ATTR {
    store(x + i, hn::Mul(load(x + i), sigmoid(load(gate + i))));
  });
}

void add_scaled_row(float* out, const float* x, float scale, int32_t width) {
  const V vscale = hn::Set(D(), scale);
  for_each_vector(width, [&](int32_t i, auto load, auto store) HWY_ATTR {
    store(out + i, hn::MulAdd(vscale, load(x + i), load(out + i)));
  });
}

// weight · x rsqrt(mean(x²) + eps) · silu(gate) for one head.
void gated_norm_head(const float* x, const float* gate, const float* weight, float* out,
                     int32_t dim, float eps) {
  const float scale = 1.0f / std::sqrt(dot(x, x, dim) / static_cast<float>(dim) + eps);
  const V vscale = hn::Set(D(), scale);
  for_each_vector(dim, [&](int32_t i, auto load, auto store) HWY_ATTR {
    const V normed = hn::Mul(hn::Mul(load(x + i), vscale), load(weight + i));
    store(out + i, hn::Mul(normed, silu(load(gate + i))));
  });
}

}  // namespace exode::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exode::cpu {
namespace {

HWY_EXPORT(normalize_row);
HWY_EXPORT(add_row);
HWY_EXPORT(swiglu_row);
HWY_EXPORT(sigmoid_gate_row);
HWY_EXPORT(add_scaled_row);
HWY_EXPORT(gated_norm_head);

// Rows per thread below which a second thread costs more than it brings.
int32_t row_grain(int32_t width) { return std::max(1, 16384 / std::max(width, 1)); }

template <class Body>
void for_rows(Stream& stream, int32_t rows, int32_t width, const Body& body) {
  stream.pool().parallel_for(rows, row_grain(width), [&](int32_t begin, int32_t end) {
    for (int32_t r = begin; r < end; ++r) body(r);
  });
}

float scalar_sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace

void launch(Stream&, const ops::TakeTokens& op, Scratch) {
  auto* tokens = op.tokens.row<int32_t>(0);
  for (int32_t r = 0; r < op.source.rows(); ++r) {
    const int32_t source = op.source.row<int32_t>(0)[r];
    if (source >= 0) tokens[r] = op.drawn.row<int32_t>(0)[source];
  }
}

void launch(Stream& stream, const ops::Embedding& op, Scratch) {
  require_f32({op.out});
  const int32_t width = op.out.cols();
  const DType dtype = op.table.codes.dtype;
  for_rows(stream, op.out.rows(), width, [&](int32_t r) {
    const int32_t token = op.tokens.row<int32_t>(0)[r];
    float* out = op.out.row<float>(r);
    if (token < 0) {
      std::fill(out, out + width, 0.0f);
    } else if (op.table.layout == WeightLayout::kInt8Group) {
      const uint8_t* in = op.table.codes.row<uint8_t>(token);
      const float* scales = op.table.scales.row<float>(token);
      for (int32_t c = 0; c < width; ++c) {
        out[c] = static_cast<float>(in[c] - kInt8Zero) * scales[c / op.table.group] * op.scale;
      }
    } else if (dtype == DType::kF32) {
      const float* in = op.table.codes.row<float>(token);
      for (int32_t c = 0; c < width; ++c) out[c] = in[c] * op.scale;
    } else {
      const uint16_t* in = op.table.codes.row<uint16_t>(token);
      for (int32_t c = 0; c < width; ++c) {
        out[c] = (dtype == DType::kBF16 ? bf16_to_float(in[c]) : f16_to_float(in[c])) * op.scale;
      }
    }
  });
}

void launch(Stream& stream, const ops::RmsNorm& op, Scratch) {
  require_f32({op.x, op.out});
  for_rows(stream, op.x.rows(), op.x.cols(), [&](int32_t r) {
    HWY_DYNAMIC_DISPATCH(normalize_row)
    (op.x.row<float>(r), op.weight.row<float>(0), op.out.row<float>(r), op.x.cols(), op.eps,
     op.weight_bias);
  });
}

void launch(Stream& stream, const ops::AddRmsNorm& op, Scratch) {
  require_f32({op.residual, op.delta, op.out});
  const int32_t width = op.out.cols();
  for_rows(stream, op.out.rows(), width, [&](int32_t r) {
    float* residual = op.residual.row<float>(r);
    HWY_DYNAMIC_DISPATCH(add_row)(residual, op.delta.row<float>(r), width);
    HWY_DYNAMIC_DISPATCH(normalize_row)
    (residual, op.weight.row<float>(0), op.out.row<float>(r), width, op.eps, op.weight_bias);
  });
}

void launch(Stream& stream, const ops::SwiGlu& op, Scratch) {
  require_f32({op.out});
  const int32_t width = op.out.cols();
  for_rows(stream, op.out.rows(), 4 * width, [&](int32_t r) {
    const float* gate = op.gate_up.row<float>(r);
    HWY_DYNAMIC_DISPATCH(swiglu_row)(gate, gate + width, op.out.row<float>(r), width);
  });
}

void launch(Stream& stream, const ops::SigmoidGate& op, Scratch) {
  require_f32({op.x});
  for_rows(stream, op.x.rows(), 4 * op.x.cols(), [&](int32_t r) {
    HWY_DYNAMIC_DISPATCH(sigmoid_gate_row)(op.x.row<float>(r), op.gate.row<float>(r), op.x.cols());
  });
}

void launch(Stream& stream, const ops::AddGated& op, Scratch) {
  require_f32({op.out});
  for_rows(stream, op.out.rows(), op.out.cols(), [&](int32_t r) {
    const float gate = scalar_sigmoid(op.gate_logit.row<float>(r)[0]);
    HWY_DYNAMIC_DISPATCH(add_scaled_row)
    (op.out.row<float>(r), op.x.row<float>(r), gate, op.out.cols());
  });
}

void launch(Stream& stream, const ops::Add& op, Scratch) {
  require_f32({op.x});
  for_rows(stream, op.x.rows(), op.x.cols(), [&](int32_t r) {
    HWY_DYNAMIC_DISPATCH(add_row)(op.x.row<float>(r), op.delta.row<float>(r), op.x.cols());
  });
}

void launch(Stream& stream, const ops::GatherRows& op, Scratch) {
  require_f32({op.x});
  const int32_t width = op.out.cols();
  for_rows(stream, op.out.rows(), width, [&](int32_t i) {
    const int32_t row = op.index.row<int32_t>(0)[i];
    float* out = op.out.row<float>(i);
    if (row < 0) {
      std::fill(out, out + width, 0.0f);
    } else {
      std::copy_n(op.x.row<float>(row), width, out);
    }
  });
}

void launch(Stream& stream, const ops::GatedRmsNorm& op, Scratch) {
  require_f32({op.x, op.gate, op.out});
  const int32_t dim = op.weight.rows();
  for_rows(stream, op.x.rows(), 4 * op.x.cols(), [&](int32_t r) {
    for (int32_t c = 0; c < op.x.cols(); c += dim) {
      HWY_DYNAMIC_DISPATCH(gated_norm_head)
      (op.x.row<float>(r) + c, op.gate.row<float>(r) + c, op.weight.row<float>(0),
       op.out.row<float>(r) + c, dim, op.eps);
    }
  });
}

}  // namespace exode::cpu
#endif  // HWY_ONCE
