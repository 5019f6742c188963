// GatedDeltaNet made of its four parts, for kernels that do not fuse them.
#pragma once

#include <algorithm>

#include "ops/gdn.h"

namespace exode::ops {

struct GatedDeltaNetParts {
  CausalConv conv;
  GdnGates gates;
  GatedDelta delta;
  GatedRmsNorm norm;
};

// Memory for the values between the parts: the convolution's output, then g and beta.
struct GatedDeltaNetMemory {
  size_t mixed_bytes, gate_bytes;

  explicit GatedDeltaNetMemory(const GatedDeltaNet& op) {
    const auto padded = [](int64_t bytes) { return static_cast<size_t>((bytes + 63) / 64 * 64); };
    const int64_t rows = op.qkvz.rows();
    mixed_bytes = padded(rows * op.shape.conv_channels() * op.qkvz.bytes_per_element());
    gate_bytes = padded(rows * op.shape.value_heads * int64_t{sizeof(float)});
  }
  size_t bytes() const { return mixed_bytes + 2 * gate_bytes; }
};

inline GatedDeltaNetParts parts_of(const GatedDeltaNet& op, std::byte* memory) {
  const GdnShape& s = op.shape;
  const GatedDeltaNetMemory size(op);
  const int32_t rows = op.qkvz.rows(), channels = s.conv_channels(), heads = s.value_heads;
  const TensorView mixed = dense_view(memory, op.qkvz.dtype, {rows, channels});
  std::byte* gates = memory + size.mixed_bytes;
  const TensorView g = dense_view(gates, DType::kF32, {rows, heads});
  const TensorView beta = dense_view(gates + size.gate_bytes, DType::kF32, {rows, heads});
  return {.conv = {.x = op.qkvz.slice_cols(0, channels),
                   .weight = op.conv,
                   .state = op.state,
                   .seqs = op.seqs,
                   .out = mixed},
          .gates = {.a = op.ba.slice_cols(heads, heads),
                    .b = op.ba.slice_cols(0, heads),
                    .a_log = op.a_log,
                    .dt_bias = op.dt_bias,
                    .g = g,
                    .beta = beta},
          .delta = {.qkv = mixed,
                    .g = g,
                    .beta = beta,
                    .positions = op.positions,
                    .state = op.state,
                    .seqs = op.seqs,
                    .shape = s,
                    .out = op.out},
          .norm = {.x = op.out,
                   .gate = op.qkvz.slice_cols(channels, s.value_width()),
                   .weight = op.norm,
                   .out = op.out,
                   .eps = op.eps}};
}

}  // namespace exode::ops
