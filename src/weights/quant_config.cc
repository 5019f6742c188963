#include "weights/quant_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace exode {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 6> kMethods{"auto-round", "intel/auto-round",   "gptq",
                                                   "awq",        "compressed-tensors", "fp8"};

const json* member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string text_of(const json& object, const char* key) {
  const json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<int64_t> integer_of(const json& object, const char* key) {
  const json* value = member(object, key);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return value->get<int64_t>();
}

std::optional<bool> bool_of(const json& object, const char* key) {
  const json* value = member(object, key);
  if (value == nullptr || !value->is_boolean()) return std::nullopt;
  return value->get<bool>();
}

const json* find_config(const json& config) {
  if (const json* top = member(config, "quantization_config")) return top;
  const json* text = member(config, "text_config");
  return text == nullptr ? nullptr : member(*text, "quantization_config");
}

// Override keys may be regular expressions. Instead of running patterns of an untrusted file, any
// asymmetric override makes symmetry unknown, which costs memory for zeros and nothing else.
bool has_asymmetric_override(const json* overrides) {
  if (overrides == nullptr || !overrides->is_object()) return false;
  return std::any_of(overrides->begin(), overrides->end(),
                     [](const json& o) { return bool_of(o, "sym") == false; });
}

Status check_activations(const json& settings, const std::string& module) {
  if (const auto bits = integer_of(settings, "act_bits"); bits && *bits < 16) {
    return unsupported(
        fmt::format("{}: activations are quantised to {} bits, only weight "
                    "quantisation is supported",
                    module, *bits));
  }
  return Done{};
}

// compressed-tensors. Sets group_size when all groups agree on it; which group a module belongs to
// is not looked up, the shapes tell.
Status read_config_groups(const json& config, const std::string& module, QuantConfig& result) {
  const json* groups = member(config, "config_groups");
  if (groups == nullptr || !groups->is_object()) return Done{};
  std::set<int64_t> sizes;
  for (const json& group : *groups) {
    if (const json* weights = member(group, "weights")) {
      sizes.insert(integer_of(*weights, "group_size").value_or(0));
    }
    const json* activations = member(group, "input_activations");
    if (activations == nullptr) continue;
    if (const auto bits = integer_of(*activations, "num_bits"); bits && *bits < 16) {
      return unsupported(
          fmt::format("{}: input_activations of {} bits, only weight quantisation "
                      "is supported",
                      module, *bits));
    }
  }
  if (sizes.size() == 1) result.group_size = *sizes.begin();
  return Done{};
}

}  // namespace

Result<QuantConfig> quant_config_for(const Checkpoint& checkpoint, const std::string& module) {
  QuantConfig result;
  const json* config = find_config(checkpoint.config());
  if (config == nullptr) return result;  // the tensors have to be enough
  result.method = text_of(*config, "quant_method");
  if (std::find(kMethods.begin(), kMethods.end(), result.method) == kMethods.end()) {
    return unsupported(
        fmt::format("{}: quant_method \"{}\" is not supported; use auto-round, "
                    "gptq, awq, compressed-tensors or fp8",
                    module, result.method));
  }
  if (result.method == "intel/auto-round") result.method = "auto-round";
  EXODE_TRY(check_activations(*config, module));
  result.group_size =
      integer_of(*config, "group_size").value_or(integer_of(*config, "q_group_size").value_or(0));
  if (result.method == "compressed-tensors") {
    EXODE_TRY(read_config_groups(*config, module, result));
  }
  result.sym = bool_of(*config, "sym");
  const json* overrides = member(*config, "extra_config");
  if (has_asymmetric_override(overrides) || has_asymmetric_override(member(*config, "dynamic"))) {
    result.sym = std::nullopt;
  }
  if (const json* own = overrides == nullptr ? nullptr : member(*overrides, module.c_str())) {
    EXODE_TRY(check_activations(*own, module));
    if (const auto sym = bool_of(*own, "sym")) result.sym = sym;
    result.group_size = integer_of(*own, "group_size").value_or(result.group_size);
  }
  const std::string packing = text_of(*config, "packing_format");
  result.zero_plus_one = text_of(*config, "checkpoint_format") != "gptq_v2" &&
                         packing != "auto_round" && packing != "auto_round:gptqmodel";
  return result;
}

}  // namespace exode
