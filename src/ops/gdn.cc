#include "ops/gdn.h"

#include "ops/require.h"

namespace exode::ops {
namespace {

void require_seqs(const char* what, const SeqRows& s) {
  for (const ConstTensorView& t : {s.row_first, s.row_count, s.state_slot, s.fresh}) {
    require_vector(what, t, s.seqs(), DType::kI32);
  }
}

}  // namespace

void validate(const CausalConv& op) {
  require_activation("causal_conv: out", op.out, op.x.rows(), op.x.cols());
  require_size("causal_conv: weight", op.weight, op.x.cols(), op.weight.cols());
  require_dtype("causal_conv: weight", op.weight, DType::kF32);
  require_size("causal_conv: conv_tail", op.state.conv_tail, op.state.conv_tail.rows(),
               int64_t{op.weight.cols() - 1} * op.x.cols());
  require_dtype("causal_conv: conv_tail", op.state.conv_tail, DType::kF32);
  require_seqs("causal_conv: seqs", op.seqs);
  EXODE_CHECK(op.x.data != op.out.data, "causal_conv: cannot run in place");
}

void validate(const GdnGates& op) {
  const int32_t rows = op.a.rows(), heads = op.a.cols();
  require_activation("gdn_gates: a", op.a, rows, heads);
  require_activation("gdn_gates: b", op.b, rows, heads);
  require_vector("gdn_gates: a_log", op.a_log, heads, DType::kF32);
  require_vector("gdn_gates: dt_bias", op.dt_bias, heads, DType::kF32);
  require_size("gdn_gates: g", op.g, rows, heads);
  require_size("gdn_gates: beta", op.beta, rows, heads);
  require_dtype("gdn_gates: g", op.g, DType::kF32);
  require_dtype("gdn_gates: beta", op.beta, DType::kF32);
}

void validate(const GatedDelta& op) {
  const GdnShape& s = op.shape;
  const int32_t rows = op.qkv.rows();
  EXODE_CHECK(s.key_heads > 0 && s.value_heads % s.key_heads == 0,
              "gated_delta: key heads must divide value heads");
  require_activation("gated_delta: qkv", op.qkv, rows, s.conv_channels());
  require_size("gated_delta: g", op.g, rows, s.value_heads);
  require_size("gated_delta: beta", op.beta, rows, s.value_heads);
  require_vector("gated_delta: positions", op.positions, rows, DType::kI32);
  require_size("gated_delta: base", op.state.base, op.state.base.rows(),
               int64_t{s.value_width()} * s.key_dim);
  require_dtype("gated_delta: base", op.state.base, DType::kF32);
  require_activation("gated_delta: out", op.out, rows, s.value_width());
  require_seqs("gated_delta: seqs", op.seqs);
}

void validate(const GatedRmsNorm& op) {
  require_activation("gated_rms_norm: gate", op.gate, op.x.rows(), op.x.cols());
  require_activation("gated_rms_norm: out", op.out, op.x.rows(), op.x.cols());
  require_vector("gated_rms_norm: weight", op.weight, op.weight.rows(), DType::kF32);
  EXODE_CHECK(op.weight.rows() > 0 && op.x.cols() % op.weight.rows() == 0,
              "gated_rms_norm: width is not a multiple of the head width");
}

void validate(const GatedDeltaNet& op) {
  const GdnShape& s = op.shape;
  const int32_t rows = op.qkvz.rows();
  EXODE_CHECK(s.key_heads > 0 && s.value_heads % s.key_heads == 0,
              "gated_delta_net: key heads must divide value heads");
  require_activation("gated_delta_net: qkvz", op.qkvz, rows, s.conv_channels() + s.value_width());
  require_like("gated_delta_net: ba", op.ba, rows, 2 * s.value_heads, op.qkvz.dtype);
  require_size("gated_delta_net: conv", op.conv, s.conv_channels(), op.conv.cols());
  require_dtype("gated_delta_net: conv", op.conv, DType::kF32);
  require_vector("gated_delta_net: a_log", op.a_log, s.value_heads, DType::kF32);
  require_vector("gated_delta_net: dt_bias", op.dt_bias, s.value_heads, DType::kF32);
  require_vector("gated_delta_net: norm", op.norm, s.value_dim, DType::kF32);
  require_vector("gated_delta_net: positions", op.positions, rows, DType::kI32);
  require_size("gated_delta_net: base", op.state.base, op.state.base.rows(),
               int64_t{s.value_width()} * s.key_dim);
  require_dtype("gated_delta_net: base", op.state.base, DType::kF32);
  require_size("gated_delta_net: conv_tail", op.state.conv_tail, op.state.base.rows(),
               int64_t{op.conv.cols() - 1} * s.conv_channels());
  require_dtype("gated_delta_net: conv_tail", op.state.conv_tail, DType::kF32);
  require_like("gated_delta_net: out", op.out, rows, s.value_width(), op.qkvz.dtype);
  require_seqs("gated_delta_net: seqs", op.seqs);
}

Cost cost(const CausalConv& op) {
  const uint64_t tails =
      2 * product(op.seqs.seqs(), op.weight.cols() - 1, op.x.cols()) * sizeof(float);
  return {tensor_bytes(op.x) + tensor_bytes(op.out) + tensor_bytes(op.weight) + tails,
          2 * product(op.x.rows(), op.x.cols(), op.weight.cols())};
}

Cost cost(const GdnGates& op) {
  return {tensor_bytes(op.a) + tensor_bytes(op.b) + tensor_bytes(op.g) + tensor_bytes(op.beta),
          20 * product(op.a.rows(), op.a.cols())};
}

Cost cost(const GatedDelta& op) {
  const GdnShape& s = op.shape;
  const uint64_t state = product(s.value_width(), s.key_dim);
  return {2 * product(op.seqs.seqs(), 1) * state * sizeof(float) + tensor_bytes(op.qkv) +
              tensor_bytes(op.out),
          7 * product(op.qkv.rows(), 1) * state};
}

Cost cost(const GatedRmsNorm& op) {
  return {tensor_bytes(op.x) + tensor_bytes(op.gate) + tensor_bytes(op.out),
          10 * product(op.x.rows(), op.x.cols())};
}

Cost cost(const GatedDeltaNet& op) {
  const GdnShape& s = op.shape;
  const uint64_t state = product(s.value_width(), s.key_dim);
  const uint64_t tail = product(op.conv.cols() - 1, s.conv_channels());
  return {2 * product(op.seqs.seqs(), 1) * (state + tail) * sizeof(float) + tensor_bytes(op.qkvz) +
              tensor_bytes(op.ba) + tensor_bytes(op.conv) + tensor_bytes(op.out),
          product(op.qkvz.rows(), 1) * (7 * state + 2 * product(s.conv_channels(), op.conv.cols()) +
                                        10 * product(s.value_width(), 1))};
}

}  // namespace exode::ops
