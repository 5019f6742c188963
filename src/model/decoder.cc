#include "model/decoder.h"

#include <fmt/format.h>

namespace exode {

Result<DecoderFrame> load_frame(WeightLoader& loader, const DecoderConfig& config,
                                const std::string& prefix) {
  DecoderFrame f;
  f.config = config;
  if (config.tied_head) {
    EXODE_ASSIGN(const WeightLoader::Tied tied,
                 loader.tied_embedding(prefix + "embed_tokens", config.vocab, config.hidden));
    f.embedding = tied.embedding;
    f.head = tied.head;
  } else {
    EXODE_ASSIGN(f.embedding,
                 loader.embedding(prefix + "embed_tokens", config.vocab, config.hidden));
    // Re-exports with the prefix "language_model.model." keep the head under "language_model.".
    const bool inside = loader.has_module("language_model.lm_head");
    EXODE_ASSIGN(f.head, loader.head(inside ? "language_model.lm_head" : "lm_head", config.vocab,
                                     config.hidden));
  }
  EXODE_ASSIGN(f.final_norm, loader.vector_f32(prefix + "norm.weight", config.hidden));
  for (int32_t i = 0; i < config.layers; ++i) {
    const std::string layer = fmt::format("{}layers.{}.", prefix, i);
    DecoderFrame::LayerNorms norms;
    EXODE_ASSIGN(norms.mixer, loader.vector_f32(layer + "input_layernorm.weight", config.hidden));
    EXODE_ASSIGN(norms.ffn,
                 loader.vector_f32(layer + "post_attention_layernorm.weight", config.hidden));
    f.norms.push_back(norms);
  }
  return f;
}

}  // namespace exode
