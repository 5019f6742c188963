// Gated DeltaNet on the CPU. The delta rule runs as a recurrence: one pass over the f32 state
// [value][key] per token, threads over (sequence, value head). The state of a head is 64 KiB and
// stays in L2 for the whole slice.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/cpu/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/gdn.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace exode::cpu::HWY_NAMESPACE {

// One value row of S: decay, read the prediction, add the correction, read the output.
HWY_INLINE float delta_line(float* state, const float* q, const float* k, int32_t dim, float decay,
                            float beta, float value) {
  const V vdecay = hn::Set(D(), decay);
  V predicted = hn::Zero(D());
  for (int32_t i = 0; i < dim; i += kLanes) {
    const V s = hn::Mul(hn::LoadU(D(), state + i), vdecay);
    hn::StoreU(s, D(), state + i);
    predicted = hn::MulAdd(s, hn::LoadU(D(), k + i), predicted);
  }
  const V delta = hn::Set(D(), beta * (value - hn::GetLane(hn::SumOfLanes(D(), predicted))));
  V out = hn::Zero(D());
  for (int32_t i = 0; i < dim; i += kLanes) {
    const V s = hn::MulAdd(delta, hn::LoadU(D(), k + i), hn::LoadU(D(), state + i));
    hn::StoreU(s, D(), state + i);
    out = hn::MulAdd(s, hn::LoadU(D(), q + i), out);
  }
  return hn::GetLane(hn::SumOfLanes(D(), out));
}

void delta_token(float* state, const float* q, const float* k, const float* v, float* out,
                 const GdnShape& shape, float decay, float beta) {
  for (int32_t i = 0; i < shape.value_dim; ++i) {
    out[i] = delta_line(state + int64_t{i} * shape.key_dim, q, k, shape.key_dim, decay, beta, v[i]);
  }
}

// out = x · rsqrt(Σx² + 1e-6) · scale
void unit_head(const float* x, float* out, int32_t dim, float scale) {
  const V factor = hn::Set(D(), scale / std::sqrt(dot(x, x, dim) + 1e-6f));
  for_each_vector(dim, [&](int32_t i, auto load, auto store) HWY_ATTR {
    store(out + i, hn::Mul(load(x + i), factor));
  });
}

// One row of the convolution: inputs[j] is the row that tap j reads.
void conv_row(const float* const* inputs, const float* weight, float* out, int32_t channels, int32_t width) {
  for_each_vector(channels, [&](int32_t c, auto load, auto store) HWY_ATTR {
    V sum = hn::Zero(D());
    for (int32_t j = 0; j < width; ++j) {
      sum = hn::MulAdd(load(weight + int64_t{j} * channels + c), load(inputs[j] + c), sum);
    }
    store(out + c, silu(sum));
  });
}

}  // namespace exode::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exode::cpu {
namespace {

HWY_EXPORT(delta_token);
HWY_EXPORT(unit_head);
HWY_EXPORT(conv_row);

constexpr int32_t kKeyDimMax = 512;
constexpr int32_t kConvWidthMax = 8;

int32_t at(const ConstTensorView& t, int32_t i) { return t.row<int32_t>(0)[i]; }

// The slice of one sequence through one value head.
void delta_head(const ops::GatedDelta& op, int32_t s, int32_t head) {
  const GdnShape& shape = op.shape;
  const int32_t first = at(op.seqs.row_first, s), count = at(op.seqs.row_count, s);
  const int64_t size = int64_t{shape.value_dim} * shape.key_dim;
  float* state = op.state.base.row<float>(at(op.seqs.state_slot, s)) + head * size;
  if (at(op.seqs.fresh, s) != 0) std::fill(state, state + size, 0.0f);
  const int32_t key_head = head / (shape.value_heads / shape.key_heads);
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  alignas(64) float q[kKeyDimMax], k[kKeyDimMax];
  for (int32_t t = first; t < first + count; ++t) {
    const float* row = op.qkv.row<float>(t);
    HWY_DYNAMIC_DISPATCH(unit_head)(row + key_head * shape.key_dim, q, shape.key_dim, q_scale);
    HWY_DYNAMIC_DISPATCH(unit_head)(row + shape.key_width() + key_head * shape.key_dim, k, shape.key_dim, 1.0f);
    const float decay = std::exp(op.g.row<float>(t)[head]);
    HWY_DYNAMIC_DISPATCH(delta_token)
    (state, q, k, row + 2 * shape.key_width() + head * shape.value_dim, op.out.row<float>(t) + head * shape.value_dim,
     shape, decay, op.beta.row<float>(t)[head]);
  }
}

// Channels [begin, begin + count) of one sequence. Tail rows come before the slice's rows.
void conv_channels(const ops::CausalConv& op, const float* weight, int32_t s, int32_t begin, int32_t count) {
  const int32_t width = op.weight.cols(), tail = width - 1, channels = op.x.cols();
  const int32_t first = at(op.seqs.row_first, s), rows = at(op.seqs.row_count, s);
  float* saved = op.state.conv_tail.row<float>(at(op.seqs.state_slot, s)) + begin;
  if (at(op.seqs.fresh, s) != 0) {
    for (int32_t i = 0; i < tail; ++i) std::fill_n(saved + int64_t{i} * channels, count, 0.0f);
  }
  // Input i of [tail ‖ slice].
  const auto input = [&](int32_t i) {
    return i < tail ? saved + int64_t{i} * channels : op.x.row<float>(first + i - tail) + begin;
  };
  const float* taps[kConvWidthMax];
  for (int32_t t = 0; t < rows; ++t) {
    for (int32_t j = 0; j < width; ++j) taps[j] = input(t + j);
    HWY_DYNAMIC_DISPATCH(conv_row)(taps, weight, op.out.row<float>(first + t) + begin, count, width);
  }
  // Oldest first: entry i is overwritten by entry i + rows, which is never before it.
  for (int32_t i = 0; i < tail; ++i) {
    std::memmove(saved + int64_t{i} * channels, input(i + rows), static_cast<size_t>(count) * sizeof(float));
  }
}

}  // namespace

size_t scratch_bytes(const DeviceCaps& caps, const ops::CausalConv& op) {
  const auto floats = static_cast<size_t>(op.weight.shape.elements());
  return static_cast<size_t>(caps.multiprocessors) * floats * sizeof(float);
}

void launch(Stream& stream, const ops::CausalConv& op, Scratch scratch) {
  EXODE_CHECK(op.x.dtype == DType::kF32, "cpu kernels take f32 activations");
  const int32_t channels = op.x.cols(), width = op.weight.cols();
  EXODE_CHECK(width <= kConvWidthMax, "convolution wider than 8 is not built");
  const int64_t per_thread = op.weight.shape.elements();
  stream.pool().run(channels >= 1024 ? stream.pool().size() : 1, [&](int32_t part, int32_t parts) {
    const auto begin = static_cast<int32_t>(int64_t{channels} * part / parts);
    const int32_t count = static_cast<int32_t>(int64_t{channels} * (part + 1) / parts) - begin;
    // Taps of this range, transposed to [width][count] so that channels are lanes.
    float* weight = reinterpret_cast<float*>(scratch.data()) + part * per_thread;
    for (int32_t c = 0; c < count; ++c) {
      for (int32_t j = 0; j < width; ++j) weight[int64_t{j} * count + c] = op.weight.row<float>(begin + c)[j];
    }
    for (int32_t s = 0; s < op.seqs.seqs(); ++s) {
      if (at(op.seqs.row_count, s) > 0) conv_channels(op, weight, s, begin, count);
    }
  });
}

void launch(Stream&, const ops::GdnGates& op, Scratch) {
  const float* a_log = op.a_log.row<float>(0);
  const float* dt_bias = op.dt_bias.row<float>(0);
  for (int32_t r = 0; r < op.a.rows(); ++r) {
    const float* a = op.a.row<float>(r);
    const float* b = op.b.row<float>(r);
    for (int32_t h = 0; h < op.a.cols(); ++h) {
      const float x = a[h] + dt_bias[h];
      const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
      op.g.row<float>(r)[h] = -std::exp(a_log[h]) * softplus;
      op.beta.row<float>(r)[h] = 1.0f / (1.0f + std::exp(-b[h]));
    }
  }
}

void launch(Stream& stream, const ops::GatedDelta& op, Scratch) {
  EXODE_CHECK(op.qkv.dtype == DType::kF32, "cpu kernels take f32 activations");
  EXODE_CHECK(op.shape.key_dim <= kKeyDimMax && op.shape.key_dim % 16 == 0,
              "gated_delta on the cpu needs a key width that is a multiple of 16 and at most 512");
  const int32_t heads = op.shape.value_heads;
  stream.pool().parallel_for(op.seqs.seqs() * heads, 1, [&](int32_t begin, int32_t end) {
    for (int32_t i = begin; i < end; ++i) {
      if (at(op.seqs.row_count, i / heads) > 0) delta_head(op, i / heads, i % heads);
    }
  });
}

}  // namespace exode::cpu
#endif  // HWY_ONCE
