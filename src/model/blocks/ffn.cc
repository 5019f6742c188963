#include "model/blocks/ffn.h"

#include <fmt/format.h>

namespace exode {
namespace {

Status load_experts(WeightLoader& loader, const MoeConfig& c, const std::string& prefix,
                    MoeWeights& w) {
  const std::string stem = prefix + ".experts";
  if (loader.has_tensor(stem + ".gate_up_proj")) {
    EXODE_ASSIGN(w.gate_up, loader.plain_matrix(stem + ".gate_up_proj",
                                                c.experts * 2 * c.expert_inner, c.hidden));
    EXODE_ASSIGN(w.down,
                 loader.plain_matrix(stem + ".down_proj", c.experts * c.hidden, c.expert_inner));
    return Done{};
  }
  std::vector<RowRange> gate_up, down;
  for (int32_t e = 0; e < c.experts; ++e) {
    const std::string expert = fmt::format("{}.{}", stem, e);
    for (const char* part : {".gate_proj", ".up_proj"}) {
      gate_up.push_back({expert + part, 0, c.expert_inner, c.expert_inner});
    }
    down.push_back({expert + ".down_proj", 0, c.hidden, c.hidden});
  }
  EXODE_ASSIGN(w.gate_up, loader.stacked(gate_up, c.hidden));
  EXODE_ASSIGN(w.down, loader.stacked(down, c.expert_inner));
  return Done{};
}

}  // namespace

Result<MlpWeights> load_mlp(WeightLoader& loader, int32_t hidden, int32_t inner,
                            const std::string& prefix) {
  MlpWeights w;
  EXODE_ASSIGN(w.gate_up, loader.stacked({{prefix + ".gate_proj", 0, inner, inner},
                                          {prefix + ".up_proj", 0, inner, inner}},
                                         hidden));
  EXODE_ASSIGN(w.down, loader.linear(prefix + ".down_proj", hidden, inner));
  return w;
}

void run_mlp(Exec& x, const MlpWeights& w, ConstTensorView h, TensorView out) {
  const auto scope = x.scope();
  const TensorView inner = x.temp(h.dtype, h.rows(), w.gate_up.rows / 2);
  x(ops::MatMulSwiGlu{.x = h, .w = w.gate_up, .out = inner});
  x(ops::MatMul{.x = inner, .w = w.down, .out = out});
}

Result<MoeWeights> load_moe(WeightLoader& loader, const MoeConfig& c, const std::string& prefix) {
  MoeWeights w;
  std::vector<RowRange> router{{prefix + ".gate", 0, c.experts, c.experts}};
  if (c.shared_inner > 0) {
    router.push_back({prefix + ".shared_expert_gate", 0, 1, 1});
    EXODE_ASSIGN(w.shared, load_mlp(loader, c.hidden, c.shared_inner, prefix + ".shared_expert"));
  }
  EXODE_ASSIGN(w.router, loader.stacked(router, c.hidden));
  EXODE_TRY(load_experts(loader, c, prefix, w));
  return w;
}

void run_moe(Exec& x, const MoeConfig& c, const MoeWeights& w, ConstTensorView h, TensorView out) {
  const auto scope = x.scope();
  const int32_t rows = h.rows();
  const TensorView logits = x.temp(h.dtype, rows, w.router.rows);
  const TensorView ids = x.temp(DType::kI32, rows, c.top_k);
  const TensorView weights = x.temp(DType::kF32, rows, c.top_k);
  x(ops::MatMul{.x = h, .w = w.router, .out = logits});
  x(ops::MoeRoute{.logits = logits.slice_cols(0, c.experts),
                  .ids = ids,
                  .weights = weights,
                  .normalize = c.normalize});
  ops::SharedExpert shared;
  if (c.shared_inner > 0) {
    shared = {.gate_up = w.shared.gate_up,
              .down = w.shared.down,
              .gate_logit = logits.slice_cols(c.experts, 1)};
  }
  x(ops::MoeExperts{.x = h,
                    .ids = ids,
                    .weights = weights,
                    .gate_up = w.gate_up,
                    .down = w.down,
                    .shared = shared,
                    .experts = c.experts,
                    .out = out});
}

}  // namespace exode
