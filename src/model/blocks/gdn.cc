#include "model/blocks/gdn.h"

namespace exode {

Result<GdnWeights> load_gdn(WeightLoader& loader, const GdnConfig& c, const std::string& prefix) {
  const GdnShape& s = c.shape;
  const int32_t channels = s.conv_channels();
  GdnWeights w;
  EXODE_ASSIGN(w.qkvz,
               loader.stacked({{prefix + ".in_proj_qkv", 0, channels, channels},
                               {prefix + ".in_proj_z", 0, s.value_width(), s.value_width()}},
                              c.hidden));
  EXODE_ASSIGN(w.ba, loader.stacked({{prefix + ".in_proj_b", 0, s.value_heads, s.value_heads},
                                     {prefix + ".in_proj_a", 0, s.value_heads, s.value_heads}},
                                    c.hidden));
  EXODE_ASSIGN(w.out, loader.linear(prefix + ".out_proj", c.hidden, s.value_width()));
  EXODE_ASSIGN(ConstTensorView conv,
               loader.vector_f32(prefix + ".conv1d.weight", channels * c.conv_width));
  w.conv = dense_view(conv.data, DType::kF32, {channels, c.conv_width});
  EXODE_ASSIGN(w.a_log, loader.vector_f32(prefix + ".A_log", s.value_heads));
  EXODE_ASSIGN(w.dt_bias, loader.vector_f32(prefix + ".dt_bias", s.value_heads));
  EXODE_ASSIGN(w.norm, loader.vector_f32(prefix + ".norm.weight", s.value_dim));
  return w;
}

void run_gdn(Exec& x, const StepInputs& in, const GdnConfig& c, const GdnWeights& w,
             const StateView& state, ConstTensorView h, TensorView out) {
  const auto scope = x.scope();
  const GdnShape& s = c.shape;
  const int32_t rows = h.rows();
  const TensorView qkvz = x.temp(h.dtype, rows, s.conv_channels() + s.value_width());
  const TensorView ba = x.temp(h.dtype, rows, 2 * s.value_heads);
  const TensorView y = x.temp(h.dtype, rows, s.value_width());
  x(ops::MatMul{.x = h, .w = w.qkvz, .out = qkvz});
  x(ops::MatMul{.x = h, .w = w.ba, .out = ba});
  x(ops::GatedDeltaNet{.qkvz = qkvz,
                       .ba = ba,
                       .conv = w.conv,
                       .a_log = w.a_log,
                       .dt_bias = w.dt_bias,
                       .norm = w.norm,
                       .positions = in.positions,
                       .state = state,
                       .seqs = in.seqs,
                       .shape = s,
                       .out = y,
                       .eps = c.eps});
  x(ops::MatMul{.x = y, .w = w.out, .out = out});
}

}  // namespace exode
