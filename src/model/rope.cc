#include "model/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/config_reader.h"

namespace exode {
namespace {

using Frequencies = std::vector<double>;

constexpr double kTau = 2 * std::numbers::pi;

// Long wavelengths are stretched by `factor`, short ones kept, those between interpolated.
void scale_llama3(ConfigReader& r, Frequencies& f) {
  const double factor = r.number_or("factor", 1, 1e4, 1);
  const double low = r.number_or("low_freq_factor", 1e-3, 1e4, 1);
  const double high = r.number_or("high_freq_factor", 1e-3, 1e4, 4);
  const double original = r.integer("original_max_position_embeddings", 1, 1 << 30);
  if (high <= low) r.fail("high_freq_factor", "must be greater than low_freq_factor");
  for (double& value : f) {
    const double wavelength = kTau / value;
    if (wavelength < original / high) continue;
    if (wavelength > original / low) {
      value /= factor;
    } else {
      const double smooth = (original / wavelength - low) / (high - low);
      value = (1 - smooth) * value / factor + smooth * value;
    }
  }
}

// Returns the attention factor.
double scale_yarn(ConfigReader& r, Frequencies& f, int32_t rotary_dim, double theta) {
  const double factor = r.number_or("factor", 1, 1e4, 1);
  const double beta_fast = r.number_or("beta_fast", 1e-3, 1e4, 32);
  const double beta_slow = r.number_or("beta_slow", 1e-3, 1e4, 1);
  const double original = r.integer("original_max_position_embeddings", 1, 1 << 30);
  const auto dimension = [&](double rotations) {
    return rotary_dim * std::log(original / (rotations * kTau)) / (2 * std::log(theta));
  };
  const double first = std::max(std::floor(dimension(beta_fast)), 0.0);
  const double last = std::min(std::ceil(dimension(beta_slow)), rotary_dim - 1.0);
  const double span = std::max(last - first, 0.001);
  for (size_t j = 0; j < f.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - first) / span, 0.0, 1.0);
    f[j] = f[j] / factor * ramp + f[j] * (1 - ramp);
  }
  return r.number_or("attention_factor", 0, 100, factor > 1 ? 0.1 * std::log(factor) + 1 : 1);
}

// The object that carries the rope fields, newest convention first.
const nlohmann::json& rope_object(const nlohmann::json& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto it = config.find(key);
    if (it != config.end() && it->is_object()) return *it;
  }
  return config;
}

}  // namespace

Result<Rope> parse_rope(const nlohmann::json& text_config, int32_t head_dim, double default_theta,
                        double default_partial) {
  ConfigReader flat(text_config, "");
  ConfigReader nested(rope_object(text_config), "rope_parameters");
  const double theta =
      nested.number_or("rope_theta", 1, 1e12, flat.number_or("rope_theta", 1, 1e12, default_theta));
  const double partial =
      nested.number_or("partial_rotary_factor", 0.01, 1,
                       flat.number_or("partial_rotary_factor", 0.01, 1, default_partial));
  const std::string type = nested.string_or("rope_type", nested.string_or("type", "default"));

  Rope rope;
  rope.rotary_dim = static_cast<int32_t>(head_dim * partial);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    nested.fail("partial_rotary_factor",
                fmt::format("gives an odd rotary width {}", rope.rotary_dim));
    rope.rotary_dim = 2;
  }
  Frequencies f(static_cast<size_t>(rope.rotary_dim / 2));
  for (size_t j = 0; j < f.size(); ++j) {
    f[j] = std::pow(theta, -2.0 * static_cast<double>(j) / rope.rotary_dim);
  }
  if (type == "linear") {
    const double factor = nested.number_or("factor", 1, 1e4, 1);
    for (double& value : f) value /= factor;
  } else if (type == "llama3") {
    scale_llama3(nested, f);
  } else if (type == "yarn") {
    rope.scale = static_cast<float>(scale_yarn(nested, f, rope.rotary_dim, theta));
  } else if (type != "default" && type != "mrope") {
    nested.fail(
        "rope_type",
        fmt::format("'{}' is not supported; supported: default, linear, llama3, yarn", type));
  }
  EXODE_TRY(flat.status());
  EXODE_TRY(nested.status());
  rope.inv_freq.assign(f.begin(), f.end());
  return rope;
}

}  // namespace exode
