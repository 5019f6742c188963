// Small fused element-wise ops of gated blocks. f32 arithmetic; tensors share one dtype.
//   SwiGlu:       out = silu(gate) · up, with [gate ‖ up] side by side as one matmul leaves them
//   SigmoidGate:  x ·= sigmoid(gate): output gate of Qwen3.5 attention
//   AddGated:     out += sigmoid(gate_logit[row]) · x: shared expert of Qwen MoE
//   Add:          x += delta
//   GatherRows:   out[i] = x[index[i]], zeros where index[i] < 0
#pragma once

#include "ops/op.h"

namespace exode::ops {

struct SwiGlu {
  ConstTensorView gate_up;  // [rows, 2·F]
  TensorView out;           // [rows, F]
};
struct SigmoidGate {
  TensorView x;          // [rows, width], updated
  ConstTensorView gate;  // [rows, width]
};
struct AddGated {
  TensorView out;              // [rows, width], updated
  ConstTensorView x;           // [rows, width]
  ConstTensorView gate_logit;  // [rows, 1]
};
struct Add {
  TensorView x;           // [rows, width], updated
  ConstTensorView delta;  // [rows, width]
};
struct GatherRows {
  ConstTensorView x;      // [rows, width]
  ConstTensorView index;  // [n] i32
  TensorView out;         // [n, width]
};

void validate(const SwiGlu&);
void validate(const SigmoidGate&);
void validate(const AddGated&);
void validate(const Add&);
void validate(const GatherRows&);
Cost cost(const SwiGlu&);
Cost cost(const SigmoidGate&);
Cost cost(const AddGated&);
Cost cost(const Add&);
Cost cost(const GatherRows&);
constexpr std::string_view name(const SwiGlu&) { return "swiglu"; }
constexpr std::string_view name(const SigmoidGate&) { return "sigmoid_gate"; }
constexpr std::string_view name(const AddGated&) { return "add_gated"; }
constexpr std::string_view name(const Add&) { return "add"; }
constexpr std::string_view name(const GatherRows&) { return "gather_rows"; }

}  // namespace exode::ops
