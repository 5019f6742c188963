// Plain dense decoders: Llama (LlamaForCausalLM) and Qwen3 (Qwen3ForCausalLM), which is the same
// stack with q/k norms.
#include <fmt/format.h>

#include "model/blocks/attention.h"
#include "model/blocks/ffn.h"
#include "model/config_reader.h"
#include "model/decoder.h"
#include "model/registry.h"

namespace exode {
namespace {

struct Family {
  const char* name;
  bool qk_norm;
  double rope_theta;
};
constexpr Family kLlama{"llama", false, 1e4};
constexpr Family kQwen3{"qwen3", true, 1e6};

struct Config {
  DecoderConfig decoder;
  AttentionConfig attention;
  int32_t inner = 0;
  int32_t context_max = 0;
};

struct Layer {
  AttentionWeights attention;
  MlpWeights mlp;
};

Result<Config> parse_config(const nlohmann::json& json, const Family& family) {
  ConfigReader r(json, "");
  Config c;
  c.decoder.vocab = r.integer("vocab_size", 1, 1 << 24);
  c.decoder.hidden = r.integer("hidden_size", 1, 1 << 17);
  c.decoder.layers = r.integer("num_hidden_layers", 1, 1024);
  c.decoder.eps = static_cast<float>(r.number_or("rms_norm_eps", 0, 1, 1e-6));
  c.decoder.tied_head = r.boolean_or("tie_word_embeddings", false);
  c.inner = r.integer("intermediate_size", 1, 1 << 20);
  c.context_max = r.integer_or("max_position_embeddings", 1, 1 << 30, 4096);
  AttentionConfig& a = c.attention;
  a.hidden = c.decoder.hidden;
  a.q_heads = r.integer("num_attention_heads", 1, 1024);
  a.kv_heads = r.integer_or("num_key_value_heads", 1, 1024, a.q_heads);
  a.head_dim = r.integer_or("head_dim", 8, 1024, a.hidden / a.q_heads);
  a.qk_norm = family.qk_norm;
  a.eps = c.decoder.eps;
  if (a.q_heads % a.kv_heads != 0) {
    r.fail("num_key_value_heads", "must divide num_attention_heads");
  }
  r.require_string("hidden_act", {"silu"});
  r.require_boolean("attention_bias", false, "no kernel adds a projection bias");
  r.require_boolean("mlp_bias", false, "no kernel adds a projection bias");
  r.require_boolean("use_sliding_window", false,
                    "sliding-window layers are not built for this family");
  EXODE_TRY(r.status());
  EXODE_ASSIGN(a.rope, parse_rope(json, a.head_dim, family.rope_theta, 1));
  return c;
}

class Llama final : public Model {
 public:
  Llama(Config config, DecoderFrame frame, std::vector<Layer> layers, ModelSpec spec,
        DType activations)
      : c_(std::move(config)),
        frame_(std::move(frame)),
        layers_(std::move(layers)),
        spec_(std::move(spec)),
        activations_(activations) {}

  const ModelSpec& spec() const override { return spec_; }

  void forward(Exec& x, const StepInputs& in, const Caches& caches,
               const StepOutputs& out) const override {
    const auto mixer = [&](int32_t i, ConstTensorView h, TensorView delta) {
      const auto layer = static_cast<size_t>(i);
      run_attention(x, in, c_.attention, layers_[layer].attention, caches.kv[0][layer], h, delta);
    };
    const auto ffn = [&](int32_t i, ConstTensorView h, TensorView delta) {
      run_mlp(x, layers_[static_cast<size_t>(i)].mlp, h, delta);
    };
    run_decoder(x, frame_, activations_, in, out, mixer, ffn);
  }

 private:
  Config c_;
  DecoderFrame frame_;
  std::vector<Layer> layers_;
  ModelSpec spec_;
  DType activations_;
};

Result<std::unique_ptr<Model>> make(const nlohmann::json& json, WeightLoader& loader,
                                    const ModelOptions& options, const Family& family) {
  EXODE_ASSIGN(Config c, parse_config(json, family));
  EXODE_ASSIGN(DecoderFrame frame, load_frame(loader, c.decoder, "model."));
  std::vector<Layer> layers;
  for (int32_t i = 0; i < c.decoder.layers; ++i) {
    const std::string name = fmt::format("model.layers.{}.", i);
    Layer layer;
    EXODE_ASSIGN(layer.attention, load_attention(loader, c.attention, name + "self_attn"));
    EXODE_ASSIGN(layer.mlp, load_mlp(loader, c.decoder.hidden, c.inner, name + "mlp"));
    layers.push_back(std::move(layer));
  }
  ModelSpec spec;
  spec.family = family.name;
  spec.vocab = c.decoder.vocab;
  spec.hidden = c.decoder.hidden;
  spec.layers = c.decoder.layers;
  spec.context_max = c.context_max;
  spec.kv_groups = {{.layers = c.decoder.layers,
                     .heads = c.attention.kv_heads,
                     .head_dim = c.attention.head_dim}};
  return std::unique_ptr<Model>(std::make_unique<Llama>(
      std::move(c), std::move(frame), std::move(layers), std::move(spec), options.activations));
}

}  // namespace

Result<std::unique_ptr<Model>> make_llama(const nlohmann::json& config, WeightLoader& loader,
                                          const ModelOptions& options) {
  return make(config, loader, options, kLlama);
}

Result<std::unique_ptr<Model>> make_qwen3(const nlohmann::json& config, WeightLoader& loader,
                                          const ModelOptions& options) {
  return make(config, loader, options, kQwen3);
}

}  // namespace exode
