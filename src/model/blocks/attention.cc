#include "model/blocks/attention.h"

#include <cmath>

namespace exode {
namespace {

// q_proj of a gated family interleaves [q ‖ gate] per head; taking the rows apart here lets the
// kernels see q, gate, k and v as four dense column ranges of one matmul.
std::vector<RowRange> qkv_rows(const AttentionConfig& c, const std::string& prefix) {
  const int32_t d = c.head_dim;
  std::vector<RowRange> rows;
  if (c.output_gate) {
    const int32_t all = 2 * c.q_width();
    for (int32_t part = 0; part < 2; ++part) {
      for (int32_t h = 0; h < c.q_heads; ++h) {
        rows.push_back({prefix + ".q_proj", (2 * h + part) * d, d, all});
      }
    }
  } else {
    rows.push_back({prefix + ".q_proj", 0, c.q_width(), c.q_width()});
  }
  rows.push_back({prefix + ".k_proj", 0, c.kv_width(), c.kv_width()});
  rows.push_back({prefix + ".v_proj", 0, c.kv_width(), c.kv_width()});
  return rows;
}

}  // namespace

Result<AttentionWeights> load_attention(WeightLoader& loader, const AttentionConfig& c,
                                        const std::string& prefix) {
  AttentionWeights w;
  EXODE_ASSIGN(w.qkv, loader.stacked(qkv_rows(c, prefix), c.hidden));
  EXODE_ASSIGN(w.out, loader.linear(prefix + ".o_proj", c.hidden, c.q_width()));
  if (c.qk_norm) {
    EXODE_ASSIGN(w.q_norm, loader.vector_f32(prefix + ".q_norm.weight", c.head_dim));
    EXODE_ASSIGN(w.k_norm, loader.vector_f32(prefix + ".k_norm.weight", c.head_dim));
  }
  w.inv_freq = loader.constant_f32(c.rope.inv_freq);
  return w;
}

void run_attention(Exec& x, const StepInputs& in, const AttentionConfig& c,
                   const AttentionWeights& w, const KvView& cache, ConstTensorView h,
                   TensorView out) {
  const auto scope = x.scope();
  const int32_t rows = h.rows();
  const int32_t gate_width = c.output_gate ? c.q_width() : 0;
  const TensorView qkv = x.temp(h.dtype, rows, w.qkv.rows);
  const TensorView y = x.temp(h.dtype, rows, c.q_width());
  x(ops::MatMul{.x = h, .w = w.qkv, .out = qkv});

  const TensorView q = qkv.slice_cols(0, c.q_width());
  const TensorView gate = qkv.slice_cols(c.q_width(), gate_width);
  const TensorView k = qkv.slice_cols(c.q_width() + gate_width, c.kv_width());
  const TensorView v = qkv.slice_cols(c.q_width() + gate_width + c.kv_width(), c.kv_width());
  x(kv::RotateAppend{.rotate = {.q = q,
                                .k = k,
                                .q_weight = w.q_norm,
                                .k_weight = w.k_norm,
                                .inv_freq = w.inv_freq,
                                .positions = in.positions,
                                .head_dim = c.head_dim,
                                .eps = c.eps,
                                .weight_bias = c.norm_bias,
                                .rope_scale = c.rope.scale},
                     .cache = cache,
                     .v = v,
                     .seq_of_row = in.seq_of_row});
  x(kv::Attend{.cache = cache,
               .q = q,
               .out = y,
               .positions = in.positions,
               .seq_of_row = in.seq_of_row,
               .gate = c.output_gate ? gate : ConstTensorView{},
               .seqs = in.seqs,
               .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))});
  x(ops::MatMul{.x = y, .w = w.out, .out = out});
}

}  // namespace exode
