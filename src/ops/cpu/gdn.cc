// Gated DeltaNet on the CPU, threads over (sequence, value head). Whole chunks of aligned positions
// run in matrix form (gdn_chunk.h), other rows as a recurrence: one pass over the f32 state
// [value][key] per token. The state of a head is 64 KiB and stays in L2 for the whole slice.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/gdn_chunk.h"
#include "ops/gdn_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/gdn.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace exode::cpu::HWY_NAMESPACE {

// Four value rows of S: the prediction e^g S k̂ first, then decay, correction and output in one go.
HWY_INLINE void delta_lines(float* state, const float* q, const float* k, int32_t dim, float decay,
                            float beta, const float* v, float* out) {
  V sum[4] = {hn::Zero(D()), hn::Zero(D()), hn::Zero(D()), hn::Zero(D())};
  for (int32_t i = 0; i < dim; i += kLanes) {
    const V key = hn::LoadU(D(), k + i);
    _Pragma("GCC unroll 4") for (int r = 0; r < 4; ++r) {
      sum[r] = hn::MulAdd(hn::LoadU(D(), state + int64_t{r} * dim + i), key, sum[r]);
    }
  }
  float predicted[4];
  store_sums(sum[0], sum[1], sum[2], sum[3], predicted);
  const V vdecay = hn::Set(D(), decay);
  V delta[4];
  _Pragma("GCC unroll 4") for (int r = 0; r < 4; ++r) {
    delta[r] = hn::Set(D(), beta * (v[r] - decay * predicted[r]));
    sum[r] = hn::Zero(D());
  }
  for (int32_t i = 0; i < dim; i += kLanes) {
    const V key = hn::LoadU(D(), k + i), query = hn::LoadU(D(), q + i);
    _Pragma("GCC unroll 4") for (int r = 0; r < 4; ++r) {
      float* line = state + int64_t{r} * dim + i;
      const V s = hn::MulAdd(delta[r], key, hn::Mul(vdecay, hn::LoadU(D(), line)));
      hn::StoreU(s, D(), line);
      sum[r] = hn::MulAdd(s, query, sum[r]);
    }
  }
  store_sums(sum[0], sum[1], sum[2], sum[3], out);
}

void delta_token(float* state, const float* q, const float* k, const float* v, float* out,
                 const GdnShape& shape, float decay, float beta) {
  const int32_t dim = shape.key_dim;
  for (int32_t i = 0; i < shape.value_dim; i += 4) {
    delta_lines(state + int64_t{i} * dim, q, k, dim, decay, beta, v + i, out + i);
  }
}

// out = x · rsqrt(Σx² + 1e-6) · scale
void unit_head(const float* x, float* out, int32_t dim, float scale) {
  const V factor = hn::Set(D(), scale / std::sqrt(dot(x, x, dim) + 1e-6f));
  for_each_vector(dim, [&](int32_t i, auto load, auto store)
                           HWY_ATTR { store(out + i, hn::Mul(load(x + i), factor)); });
}

// One row of the convolution: inputs[j] is the row that tap j reads.
void conv_row(const float* const* inputs, const float* weight, float* out, int32_t channels,
              int32_t width) {
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

constexpr int32_t kConvWidthMax = 8;

int32_t at(const ConstTensorView& t, int32_t i) { return t.row<int32_t>(0)[i]; }

// Scratch of one thread: q and k of a chunk, then what delta_chunk() needs.
size_t delta_floats(const GdnShape& shape) {
  return 2 * size_t{kGdnChunk} * static_cast<size_t>(shape.key_dim) +
         delta_chunk_scratch(shape.value_dim);
}

// Rows [first, first + count) of one sequence through one value head.
class DeltaHead {
 public:
  DeltaHead(const ops::GatedDelta& op, int32_t sequence, int32_t head, float* scratch)
      : op_(op),
        shape_(op.shape),
        head_(head),
        q_(scratch),
        k_(q_ + int64_t{kGdnChunk} * shape_.key_dim),
        chunk_scratch_(k_ + int64_t{kGdnChunk} * shape_.key_dim) {
    const int64_t size = int64_t{shape_.value_dim} * shape_.key_dim;
    state_ = op.state.base.row<float>(at(op.seqs.state_slot, sequence)) + head * size;
    if (at(op.seqs.fresh, sequence) != 0) std::fill(state_, state_ + size, 0.0f);
  }

  void run(int32_t first, int32_t count) {
    const int32_t end = first + count;
    for (int32_t row = first; row < end;) {
      const bool aligned = at(op_.positions, row) % kGdnChunk == 0;
      const int32_t rows = aligned && row + kGdnChunk <= end ? kGdnChunk : 1;
      load(row, rows);
      if (rows == 1) {
        token(row);
      } else {
        chunk(row);
      }
      row += rows;
    }
  }

 private:
  // q and k of the rows, normalised.
  void load(int32_t row, int32_t rows) {
    const int32_t key_head = head_ / (shape_.value_heads / shape_.key_heads), dim = shape_.key_dim;
    const float q_scale = 1.0f / std::sqrt(static_cast<float>(dim));
    for (int32_t r = 0; r < rows; ++r) {
      const float* in = op_.qkv.row<float>(row + r) + key_head * dim;
      HWY_DYNAMIC_DISPATCH(unit_head)(in, q_ + int64_t{r} * dim, dim, q_scale);
      HWY_DYNAMIC_DISPATCH(unit_head)(in + shape_.key_width(), k_ + int64_t{r} * dim, dim, 1.0f);
    }
  }
  const float* values(int32_t row) const {
    return op_.qkv.row<float>(row) + 2 * shape_.key_width() + head_ * shape_.value_dim;
  }
  float* output(int32_t row) const { return op_.out.row<float>(row) + head_ * shape_.value_dim; }

  void token(int32_t row) {
    HWY_DYNAMIC_DISPATCH(delta_token)
    (state_, q_, k_, values(row), output(row), shape_, std::exp(op_.g.row<float>(row)[head_]),
     op_.beta.row<float>(row)[head_]);
  }
  void chunk(int32_t row) {
    delta_chunk({.q = q_,
                 .k = k_,
                 .v = values(row),
                 .v_stride = op_.qkv.row_stride,
                 .g = op_.g.row<float>(row) + head_,
                 .beta = op_.beta.row<float>(row) + head_,
                 .gate_stride = op_.g.row_stride,
                 .state = state_,
                 .out = output(row),
                 .out_stride = op_.out.row_stride,
                 .key_dim = shape_.key_dim,
                 .value_dim = shape_.value_dim,
                 .scratch = chunk_scratch_});
  }

  const ops::GatedDelta& op_;
  const GdnShape& shape_;
  int32_t head_;
  float *q_, *k_, *chunk_scratch_;
  float* state_ = nullptr;
};

// Channels [begin, begin + count) of one sequence. Tail rows come before the slice's rows.
void conv_channels(const ops::CausalConv& op, const float* weight, int32_t s, int32_t begin,
                   int32_t count) {
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
    HWY_DYNAMIC_DISPATCH(conv_row)
    (taps, weight, op.out.row<float>(first + t) + begin, count, width);
  }
  // Oldest first: entry i is overwritten by entry i + rows, which is never before it.
  for (int32_t i = 0; i < tail; ++i) {
    std::memmove(saved + int64_t{i} * channels, input(i + rows),
                 static_cast<size_t>(count) * sizeof(float));
  }
}

}  // namespace

size_t scratch_bytes(const DeviceCaps& caps, const ops::CausalConv& op) {
  const auto floats = static_cast<size_t>(op.weight.shape.elements());
  return static_cast<size_t>(caps.multiprocessors) * floats * sizeof(float);
}

void launch(Stream& stream, const ops::CausalConv& op, Scratch scratch) {
  require_f32({op.x, op.out});
  const int32_t channels = op.x.cols(), width = op.weight.cols();
  EXODE_CHECK(width <= kConvWidthMax, "convolution wider than 8 is not built");
  const int64_t per_thread = op.weight.shape.elements();
  stream.pool().run(channels >= 1024 ? stream.pool().size() : 1, [&](int32_t part, int32_t parts) {
    const auto begin = static_cast<int32_t>(int64_t{channels} * part / parts);
    const int32_t count = static_cast<int32_t>(int64_t{channels} * (part + 1) / parts) - begin;
    // Taps of this range, transposed to [width][count] so that channels are lanes.
    float* weight = reinterpret_cast<float*>(scratch.data()) + part * per_thread;
    for (int32_t c = 0; c < count; ++c) {
      for (int32_t j = 0; j < width; ++j)
        weight[int64_t{j} * count + c] = op.weight.row<float>(begin + c)[j];
    }
    for (int32_t s = 0; s < op.seqs.seqs(); ++s) {
      if (at(op.seqs.row_count, s) > 0) conv_channels(op, weight, s, begin, count);
    }
  });
}

void launch(Stream&, const ops::GdnGates& op, Scratch) {
  require_f32({op.a, op.b});
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

size_t scratch_bytes(const DeviceCaps& caps, const ops::GatedDelta& op) {
  return static_cast<size_t>(caps.multiprocessors) * delta_floats(op.shape) * sizeof(float);
}

void launch(Stream& stream, const ops::GatedDelta& op, Scratch scratch) {
  require_f32({op.qkv, op.out});
  EXODE_CHECK(op.shape.key_dim % 16 == 0 && op.shape.value_dim % 16 == 0,
              "gated_delta on the cpu needs head widths that are multiples of 16");
  EXODE_CHECK(op.g.row_stride == op.beta.row_stride, "gated_delta: g and beta must share a stride");
  const int32_t heads = op.shape.value_heads, tasks = op.seqs.seqs() * heads;
  auto* memory = reinterpret_cast<float*>(scratch.data());
  stream.pool().run(std::clamp(tasks, 1, stream.pool().size()), [&](int32_t part, int32_t parts) {
    float* own = memory + static_cast<size_t>(part) * delta_floats(op.shape);
    for (int32_t i = tasks * part / parts; i < tasks * (part + 1) / parts; ++i) {
      const int32_t s = i / heads;
      if (at(op.seqs.row_count, s) == 0) continue;
      DeltaHead(op, s, i % heads, own).run(at(op.seqs.row_first, s), at(op.seqs.row_count, s));
    }
  });
}

size_t scratch_bytes(const DeviceCaps& caps, const ops::GatedDeltaNet& op) {
  ops::CausalConv conv;
  conv.weight = op.conv;
  ops::GatedDelta delta;
  delta.shape = op.shape;
  return ops::GatedDeltaNetMemory(op).bytes() +
         std::max(scratch_bytes(caps, conv), scratch_bytes(caps, delta));
}

void launch(Stream& stream, const ops::GatedDeltaNet& op, Scratch scratch) {
  const ops::GatedDeltaNetParts parts = ops::parts_of(op, scratch.data());
  const Scratch rest = scratch.subspan(ops::GatedDeltaNetMemory(op).bytes());
  launch(stream, parts.conv, rest);
  launch(stream, parts.gates, {});
  launch(stream, parts.delta, rest);
  launch(stream, parts.norm, {});
}

}  // namespace exode::cpu
#endif  // HWY_ONCE
