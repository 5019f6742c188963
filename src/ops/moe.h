// Mixture of experts (Qwen3.5 MoE: softmax over all experts, top-k, renormalise by their sum).
//   MoeRoute    ids[r] = the top_k largest logits, ties to the lower id; weights = softmax over
//               the selected logits (which equals softmax over all, then division by the sum)
//               when normalize, else the plain softmax over all.
//   MoeExperts  out[r] = Σ_j weights[r,j] · down_e( silu(gate_e x) · up_e x ),  e = ids[r,j].
//               Rows are independent: the sum over j runs in the order of j. The ids of a row are
//               distinct. With a shared expert, which every row takes,
//               out[r] += sigmoid(gate_logit[r]) · down( silu(gate x) · up x )  comes last.
#pragma once

#include "ops/op.h"

namespace exode::ops {

struct MoeRoute {
  ConstTensorView logits;  // [rows, experts]
  TensorView ids;          // [rows, top_k] i32
  TensorView weights;      // [rows, top_k] f32
  bool normalize = true;
};

struct SharedExpert {
  WeightView gate_up;          // [2F', hidden], gate rows then up rows; empty = no shared expert
  WeightView down;             // [hidden, F']
  ConstTensorView gate_logit;  // [rows, 1]
  bool empty() const { return gate_up.rows == 0; }
};

struct MoeExperts {
  ConstTensorView x;        // [rows, hidden]
  ConstTensorView ids;      // [rows, top_k] i32
  ConstTensorView weights;  // [rows, top_k] f32
  WeightView gate_up;       // [experts · 2F, hidden], per expert gate rows then up rows
  WeightView down;          // [experts · hidden, F]
  SharedExpert shared = {};
  int32_t experts = 0;
  TensorView out;  // [rows, hidden], overwritten
};

void validate(const MoeRoute&);
void validate(const MoeExperts&);
Cost cost(const MoeRoute&);
Cost cost(const MoeExperts&);
constexpr std::string_view name(const MoeRoute&) { return "moe_route"; }
constexpr std::string_view name(const MoeExperts&) { return "moe_experts"; }

}  // namespace exode::ops
