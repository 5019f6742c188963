#include "weights/synthetic.h"

#include <fmt/format.h>

#include <algorithm>

namespace exode {
namespace {

using nlohmann::json;

constexpr int64_t kGroup = 128;
constexpr int64_t kHeadDim = 256;   // of attention
constexpr int64_t kDeltaDim = 128;  // keys and values of Gated DeltaNet
constexpr int64_t kConvWidth = 4;
constexpr int32_t kInterval = 4;  // every fourth layer is attention

// A Qwen3.5 text model. experts = 0: dense.
struct Preset {
  const char* name;
  bool int4, tied;
  int64_t vocab, hidden, layers, inner;
  int64_t q_heads, kv_heads, key_heads, value_heads;
  int64_t experts, top_k, expert_inner;  // the shared expert is as wide as the others
};

constexpr Preset kPresets[] = {
    {.name = "qwen3.6-27b-int4",
     .int4 = true,
     .tied = false,
     .vocab = 248320,
     .hidden = 5120,
     .layers = 64,
     .inner = 17408,
     .q_heads = 24,
     .kv_heads = 4,
     .key_heads = 16,
     .value_heads = 48,
     .experts = 0,
     .top_k = 0,
     .expert_inner = 0},
    {.name = "qwen3.6-35b-a3b-int4",
     .int4 = true,
     .tied = false,
     .vocab = 248320,
     .hidden = 2048,
     .layers = 40,
     .inner = 0,
     .q_heads = 16,
     .kv_heads = 2,
     .key_heads = 16,
     .value_heads = 32,
     .experts = 256,
     .top_k = 8,
     .expert_inner = 512},
    {.name = "qwen3.5-0.8b-bf16",
     .int4 = false,
     .tied = true,
     .vocab = 248320,
     .hidden = 1024,
     .layers = 24,
     .inner = 3584,
     .q_heads = 8,
     .kv_heads = 2,
     .key_heads = 16,
     .value_heads = 16,
     .experts = 0,
     .top_k = 0,
     .expert_inner = 0},
    // Small enough for a test on any machine, with every kind of layer.
    {.name = "tiny-int4",
     .int4 = true,
     .tied = false,
     .vocab = 512,
     .hidden = 256,
     .layers = 4,
     .inner = 512,
     .q_heads = 2,
     .kv_heads = 1,
     .key_heads = 1,
     .value_heads = 2,
     .experts = 0,
     .top_k = 0,
     .expert_inner = 0},
    {.name = "tiny-moe-int4",
     .int4 = true,
     .tied = false,
     .vocab = 512,
     .hidden = 256,
     .layers = 4,
     .inner = 0,
     .q_heads = 2,
     .kv_heads = 1,
     .key_heads = 1,
     .value_heads = 2,
     .experts = 8,
     .top_k = 2,
     .expert_inner = 128},
};

class Builder {
 public:
  explicit Builder(const Preset& preset) : p_(preset) {}

  SyntheticModel build() {
    const std::string prefix = "model.language_model.";
    plain(prefix + "embed_tokens.weight", {p_.vocab, p_.hidden});
    if (!p_.tied) plain("lm_head.weight", {p_.vocab, p_.hidden});
    norm(prefix + "norm.weight", p_.hidden);
    for (int64_t i = 0; i < p_.layers; ++i) {
      const std::string layer = fmt::format("{}layers.{}.", prefix, i);
      block(layer, (i + 1) % kInterval != 0);
    }
    plain("mtp.fc.weight", {p_.hidden, 2 * p_.hidden});
    for (const char* name : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}) {
      norm(fmt::format("mtp.{}.weight", name), p_.hidden);
    }
    block("mtp.layers.0.", false);
    return {config(), std::move(tensors_)};
  }

 private:
  void tensor(const std::string& name, FileDType dtype, std::vector<int64_t> shape) {
    tensors_[name] = {.dtype = dtype, .shape = std::move(shape), .data = {}};
  }
  void plain(const std::string& name, std::vector<int64_t> shape) {
    tensor(name, FileDType::kBF16, std::move(shape));
  }
  void ranged(const std::string& name, std::vector<int64_t> shape, float low, float high) {
    plain(name, std::move(shape));
    tensors_[name].low = low;
    tensors_[name].high = high;
  }
  // Stored minus one: values near zero.
  void norm(const std::string& name, int64_t width) { ranged(name, {width}, -0.1f, 0.1f); }

  void linear(const std::string& module, int64_t rows, int64_t cols) {
    if (!p_.int4) return plain(module + ".weight", {rows, cols});
    tensor(module + ".qweight", FileDType::kI32, {cols / 8, rows});
    tensor(module + ".qzeros", FileDType::kI32, {cols / kGroup, rows / 8});
    tensor(module + ".scales", FileDType::kF16, {cols / kGroup, rows});
  }

  void block(const std::string& layer, bool is_linear) {
    norm(layer + "input_layernorm.weight", p_.hidden);
    norm(layer + "post_attention_layernorm.weight", p_.hidden);
    if (is_linear) {
      gated_delta(layer + "linear_attn.");
    } else {
      attention(layer + "self_attn.");
    }
    feed_forward(layer + "mlp.");
  }

  void attention(const std::string& prefix) {
    linear(prefix + "q_proj", 2 * p_.q_heads * kHeadDim, p_.hidden);  // with the gate
    linear(prefix + "k_proj", p_.kv_heads * kHeadDim, p_.hidden);
    linear(prefix + "v_proj", p_.kv_heads * kHeadDim, p_.hidden);
    linear(prefix + "o_proj", p_.hidden, p_.q_heads * kHeadDim);
    norm(prefix + "q_norm.weight", kHeadDim);
    norm(prefix + "k_norm.weight", kHeadDim);
  }

  void gated_delta(const std::string& prefix) {
    const int64_t values = p_.value_heads * kDeltaDim;
    const int64_t channels = 2 * p_.key_heads * kDeltaDim + values;
    linear(prefix + "in_proj_qkv", channels, p_.hidden);
    linear(prefix + "in_proj_z", values, p_.hidden);
    linear(prefix + "out_proj", p_.hidden, values);
    for (const char* gate : {"in_proj_a", "in_proj_b"}) {
      plain(prefix + gate + ".weight", {p_.value_heads, p_.hidden});
      if (p_.int4) overrides_[prefix + gate] = {{"bits", 16}, {"data_type", "fp"}};
    }
    ranged(prefix + "conv1d.weight", {channels, 1, kConvWidth}, -0.5f, 0.5f);
    ranged(prefix + "A_log", {p_.value_heads}, 0, 2.7f);         // decay rates of 1…15
    ranged(prefix + "dt_bias", {p_.value_heads}, -6.9f, -2.2f);  // steps of 0.001…0.1
    ranged(prefix + "norm.weight", {kDeltaDim}, 0.9f, 1.1f);     // not stored minus one
  }

  void gated_mlp(const std::string& prefix, int64_t inner) {
    linear(prefix + "gate_proj", inner, p_.hidden);
    linear(prefix + "up_proj", inner, p_.hidden);
    linear(prefix + "down_proj", p_.hidden, inner);
  }

  void feed_forward(const std::string& prefix) {
    if (p_.experts == 0) return gated_mlp(prefix, p_.inner);
    plain(prefix + "gate.weight", {p_.experts, p_.hidden});
    plain(prefix + "shared_expert_gate.weight", {1, p_.hidden});
    gated_mlp(prefix + "shared_expert.", p_.expert_inner);
    for (int64_t e = 0; e < p_.experts; ++e) {
      gated_mlp(fmt::format("{}experts.{}.", prefix, e), p_.expert_inner);
    }
  }

  json text_config() const {
    json layer_types = json::array();
    for (int64_t i = 0; i < p_.layers; ++i) {
      layer_types.push_back((i + 1) % kInterval != 0 ? "linear_attention" : "full_attention");
    }
    json text = {{"model_type", p_.experts > 0 ? "qwen3_5_moe_text" : "qwen3_5_text"},
                 {"dtype", "bfloat16"},
                 {"vocab_size", p_.vocab},
                 {"hidden_size", p_.hidden},
                 {"num_hidden_layers", p_.layers},
                 {"num_attention_heads", p_.q_heads},
                 {"num_key_value_heads", p_.kv_heads},
                 {"head_dim", kHeadDim},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", 262144},
                 {"rms_norm_eps", 1e-6},
                 {"tie_word_embeddings", p_.tied},
                 {"attention_bias", false},
                 {"attn_output_gate", true},
                 {"full_attention_interval", kInterval},
                 {"layer_types", layer_types},
                 {"linear_conv_kernel_dim", kConvWidth},
                 {"linear_key_head_dim", kDeltaDim},
                 {"linear_value_head_dim", kDeltaDim},
                 {"linear_num_key_heads", p_.key_heads},
                 {"linear_num_value_heads", p_.value_heads},
                 {"mamba_ssm_dtype", "float32"},
                 {"mtp_num_hidden_layers", 1},
                 {"mtp_use_dedicated_embeddings", false},
                 {"rope_parameters",
                  {{"rope_type", "default"},
                   {"rope_theta", 1e7},
                   {"partial_rotary_factor", 0.25},
                   {"mrope_section", {11, 11, 10}},
                   {"mrope_interleaved", true}}}};
    if (p_.experts > 0) {
      text["num_experts"] = p_.experts;
      text["num_experts_per_tok"] = p_.top_k;
      text["moe_intermediate_size"] = p_.expert_inner;
      text["shared_expert_intermediate_size"] = p_.expert_inner;
    } else {
      text["intermediate_size"] = p_.inner;
    }
    return text;
  }

  json config() const {
    const bool moe = p_.experts > 0;
    json config = {
        {"architectures",
         {moe ? "Qwen3_5MoeForConditionalGeneration" : "Qwen3_5ForConditionalGeneration"}},
        {"model_type", moe ? "qwen3_5_moe" : "qwen3_5"},
        {"tie_word_embeddings", p_.tied},
        {"text_config", text_config()}};
    if (!p_.int4) return config;
    json overrides = overrides_;
    overrides["mtp.fc"] = {{"bits", 16}, {"data_type", "fp"}};
    config["quantization_config"] = {
        {"quant_method", "auto-round"},
        {"bits", 4},
        {"group_size", kGroup},
        {"sym", true},
        {"data_type", "int"},
        {"packing_format", "auto_round:auto_gptq"},
        {"block_name_to_quantize", {"model.language_model.layers", "mtp.layers"}},
        {"extra_config", overrides}};
    return config;
  }

  const Preset& p_;
  std::map<std::string, RawTensor> tensors_;
  json overrides_ = json::object();
};

}  // namespace

std::string synthetic_names() {
  std::string names;
  for (const Preset& preset : kPresets)
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  return names;
}

Result<SyntheticModel> make_synthetic_model(const std::string& name) {
  const auto* preset = std::find_if(std::begin(kPresets), std::end(kPresets),
                                    [&](const Preset& p) { return p.name == name; });
  if (preset == std::end(kPresets)) {
    return invalid(
        fmt::format("--synthetic {} is not known; available: {}", name, synthetic_names()));
  }
  return Builder(*preset).build();
}

}  // namespace exode
