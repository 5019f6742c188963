// Qwen3.5 / Qwen3.6, dense and mixture of experts: three Gated DeltaNet layers to one gated
// full-attention layer, norms stored minus one. Config and tensor names as published
// (Qwen3_5ForConditionalGeneration and its text-only re-exports).
#include <fmt/format.h>

#include <algorithm>

#include "model/blocks/attention.h"
#include "model/blocks/ffn.h"
#include "model/blocks/gdn.h"
#include "model/config_reader.h"
#include "model/decoder.h"
#include "model/registry.h"

namespace exode {
namespace {

// --- Config ---------------------------------------------------------------------------------

struct Config {
  DecoderConfig decoder;
  AttentionConfig attention;
  GdnConfig gdn;
  std::vector<bool> is_linear;  // per layer
  int32_t context_max = 0;
  int32_t inner = 0;  // dense
  MoeConfig moe;      // experts = 0 for dense
};

std::vector<bool> parse_layer_types(ConfigReader& r, int32_t layers) {
  std::vector<bool> linear;
  if (r.has("layer_types")) {
    for (const std::string& type : r.strings_or("layer_types", {})) {
      if (type != "linear_attention" && type != "full_attention") {
        r.fail("layer_types", fmt::format("'{}' is not linear_attention or full_attention", type));
      }
      linear.push_back(type == "linear_attention");
    }
    if (static_cast<int32_t>(linear.size()) != layers) {
      r.fail("layer_types",
             fmt::format("{} entries for num_hidden_layers = {}", linear.size(), layers));
    }
  } else {
    const int32_t interval = r.integer_or("full_attention_interval", 1, 1024, 4);
    for (int32_t i = 0; i < layers; ++i) linear.push_back((i + 1) % interval != 0);
  }
  linear.resize(static_cast<size_t>(layers));
  return linear;
}

void parse_attention(ConfigReader& r, Config& c) {
  AttentionConfig& a = c.attention;
  a.hidden = c.decoder.hidden;
  a.q_heads = r.integer("num_attention_heads", 1, 1024);
  a.kv_heads = r.integer("num_key_value_heads", 1, 1024);
  a.head_dim = r.integer_or("head_dim", 8, 1024, 256);
  if (a.q_heads % a.kv_heads != 0) {
    r.fail("num_key_value_heads", "must divide num_attention_heads");
  }
  a.output_gate = r.boolean_or("attn_output_gate", true);
  a.qk_norm = true;
  a.eps = c.decoder.eps;
  a.norm_bias = 1;
  r.require_boolean("attention_bias", false, "no kernel adds a projection bias");
}

void parse_gdn(ConfigReader& r, Config& c) {
  GdnShape& s = c.gdn.shape;
  s.key_heads = r.integer("linear_num_key_heads", 1, 1024);
  s.value_heads = r.integer("linear_num_value_heads", 1, 1024);
  s.key_dim = r.integer_or("linear_key_head_dim", 8, 512, 128);
  s.value_dim = r.integer_or("linear_value_head_dim", 8, 512, 128);
  c.gdn.conv_width = r.integer_or("linear_conv_kernel_dim", 2, 8, 4);
  c.gdn.hidden = c.decoder.hidden;
  c.gdn.eps = c.decoder.eps;
  if (s.value_heads % s.key_heads != 0) {
    r.fail("linear_num_key_heads", "must divide linear_num_value_heads");
  }
  r.require_string("output_gate_type", {"swish", "silu"});
}

void parse_ffn(ConfigReader& r, bool moe, Config& c) {
  if (!moe) {
    c.inner = r.integer("intermediate_size", 1, 1 << 20);
    return;
  }
  MoeConfig& m = c.moe;
  m.hidden = c.decoder.hidden;
  m.experts = r.integer("num_experts", 1, 4096);
  m.top_k = r.integer("num_experts_per_tok", 1, 64);
  m.expert_inner = r.integer("moe_intermediate_size", 1, 1 << 20);
  m.shared_inner = r.integer_or("shared_expert_intermediate_size", 0, 1 << 20, 0);
  m.normalize = r.boolean_or("norm_topk_prob", true);
  if (m.top_k > m.experts) r.fail("num_experts_per_tok", "is greater than num_experts");
}

Result<Config> parse_config(const nlohmann::json& top, bool moe) {
  const bool nested = top.contains("text_config") && top["text_config"].is_object();
  const nlohmann::json& text = nested ? top["text_config"] : top;
  ConfigReader r(text, nested ? "text_config" : "");
  ConfigReader outer(top, "");
  Config c;
  c.decoder.vocab = r.integer("vocab_size", 1, 1 << 24);
  c.decoder.hidden = r.integer("hidden_size", 1, 1 << 17);
  c.decoder.layers = r.integer("num_hidden_layers", 1, 1024);
  c.decoder.eps = static_cast<float>(r.number_or("rms_norm_eps", 0, 1, 1e-6));
  c.decoder.norm_bias = 1;
  c.decoder.tied_head =
      r.boolean_or("tie_word_embeddings", outer.boolean_or("tie_word_embeddings", false));
  c.context_max = r.integer_or("max_position_embeddings", 1, 1 << 30, 262144);
  r.require_string("hidden_act", {"silu"});
  c.is_linear = parse_layer_types(r, c.decoder.layers);
  parse_attention(r, c);
  parse_gdn(r, c);
  parse_ffn(r, moe, c);
  EXODE_TRY(outer.status());
  EXODE_TRY(r.status());
  EXODE_ASSIGN(c.attention.rope, parse_rope(text, c.attention.head_dim, 1e7, 0.25));
  return c;
}

// --- Weights --------------------------------------------------------------------------------

struct Layer {
  AttentionWeights attention;  // one of the two is filled
  GdnWeights gdn;
  int32_t cache_index = 0;  // among layers of its kind
  MlpWeights mlp;           // one of the two is filled
  MoeWeights moe;
};

Result<std::string> find_prefix(const WeightLoader& loader) {
  for (const char* prefix : {"model.language_model.", "model.", "language_model.model."}) {
    if (loader.has_tensor(std::string(prefix) + "embed_tokens.weight")) return std::string(prefix);
  }
  return invalid(
      "no embed_tokens.weight under model.language_model., model. or language_model.model.: "
      "this is not a Qwen3.5 checkpoint");
}

Result<Layer> load_layer(WeightLoader& loader, const Config& c, int32_t index,
                         const std::string& prefix) {
  Layer layer;
  const std::string name = fmt::format("{}layers.{}.", prefix, index);
  const bool linear = c.is_linear[static_cast<size_t>(index)];
  if (linear) {
    EXODE_ASSIGN(layer.gdn, load_gdn(loader, c.gdn, name + "linear_attn"));
  } else {
    EXODE_ASSIGN(layer.attention, load_attention(loader, c.attention, name + "self_attn"));
  }
  for (int32_t i = 0; i < index; ++i) {
    layer.cache_index += c.is_linear[static_cast<size_t>(i)] == linear ? 1 : 0;
  }
  if (c.moe.experts > 0) {
    EXODE_ASSIGN(layer.moe, load_moe(loader, c.moe, name + "mlp"));
  } else {
    EXODE_ASSIGN(layer.mlp, load_mlp(loader, c.decoder.hidden, c.inner, name + "mlp"));
  }
  return layer;
}

// --- Forward --------------------------------------------------------------------------------

class Qwen35 final : public Model {
 public:
  Qwen35(Config config, DecoderFrame frame, std::vector<Layer> layers, ModelSpec spec,
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
      const Layer& layer = layers_[static_cast<size_t>(i)];
      const auto cache = static_cast<size_t>(layer.cache_index);
      if (c_.is_linear[static_cast<size_t>(i)]) {
        run_gdn(x, in, c_.gdn, layer.gdn, caches.state[cache], h, delta);
      } else {
        run_attention(x, in, c_.attention, layer.attention, caches.kv[0][cache], h, delta);
      }
    };
    const auto ffn = [&](int32_t i, ConstTensorView h, TensorView delta) {
      const Layer& layer = layers_[static_cast<size_t>(i)];
      if (c_.moe.experts > 0) {
        run_moe(x, c_.moe, layer.moe, h, delta);
      } else {
        run_mlp(x, layer.mlp, h, delta);
      }
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

// --- Factory --------------------------------------------------------------------------------

ModelSpec make_spec(const Config& c) {
  const auto linear =
      static_cast<int32_t>(std::count(c.is_linear.begin(), c.is_linear.end(), true));
  ModelSpec spec;
  spec.family = c.moe.experts > 0 ? "qwen3_5_moe" : "qwen3_5";
  spec.vocab = c.decoder.vocab;
  spec.hidden = c.decoder.hidden;
  spec.layers = c.decoder.layers;
  spec.context_max = c.context_max;
  if (linear < c.decoder.layers) {
    spec.kv_groups = {{.layers = c.decoder.layers - linear,
                       .heads = c.attention.kv_heads,
                       .head_dim = c.attention.head_dim}};
  }
  if (linear > 0) {
    spec.state =
        StateGeometry{.layers = linear, .gdn = c.gdn.shape, .conv_width = c.gdn.conv_width};
  }
  return spec;
}

Result<std::unique_ptr<Model>> make(const nlohmann::json& json, WeightLoader& loader,
                                    const ModelOptions& options, bool moe) {
  EXODE_ASSIGN(Config c, parse_config(json, moe));
  EXODE_ASSIGN(const std::string prefix, find_prefix(loader));
  EXODE_ASSIGN(DecoderFrame frame, load_frame(loader, c.decoder, prefix));
  std::vector<Layer> layers;
  for (int32_t i = 0; i < c.decoder.layers; ++i) {
    EXODE_ASSIGN(Layer layer, load_layer(loader, c, i, prefix));
    layers.push_back(std::move(layer));
  }
  ModelSpec spec = make_spec(c);
  return std::unique_ptr<Model>(std::make_unique<Qwen35>(
      std::move(c), std::move(frame), std::move(layers), std::move(spec), options.activations));
}

}  // namespace

Result<std::unique_ptr<Model>> make_qwen3_5(const nlohmann::json& config, WeightLoader& loader,
                                            const ModelOptions& options) {
  return make(config, loader, options, false);
}

Result<std::unique_ptr<Model>> make_qwen3_5_moe(const nlohmann::json& config, WeightLoader& loader,
                                                const ModelOptions& options) {
  return make(config, loader, options, true);
}

}  // namespace exode
