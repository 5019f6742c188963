#include "model/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace exode {

const nlohmann::json* ConfigReader::find(const char* key) const {
  if (!json_.is_object()) return nullptr;
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::has(const char* key) const { return find(key) != nullptr; }

void ConfigReader::fail(const char* key, const std::string& problem) {
  if (error_) return;
  error_ = invalid(
      fmt::format("config.json: {}{}{}: {}", path_, path_.empty() ? "" : ".", key, problem));
}

Status ConfigReader::status() const {
  if (error_) return *error_;
  return Done{};
}

int32_t ConfigReader::integer(const char* key, int32_t low, int32_t high) {
  if (!has(key)) {
    fail(key, "missing");
    return low;
  }
  return integer_or(key, low, high, low);
}

int32_t ConfigReader::integer_or(const char* key, int32_t low, int32_t high, int32_t fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number_integer()) {
    fail(key, fmt::format("expected an integer, got {}", value->dump()));
    return low;
  }
  const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT32_MAX};
  const int64_t number = huge ? INT64_MAX : value->get<int64_t>();
  if (number < low || number > high) {
    fail(key, fmt::format("{} is outside {}…{}", value->dump(), low, high));
    return low;
  }
  return static_cast<int32_t>(number);
}

double ConfigReader::number_or(const char* key, double low, double high, double fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high)) {
    fail(key, fmt::format("{} is not a number in {}…{}", value->dump(), low, high));
    return low;
  }
  return number;
}

bool ConfigReader::boolean_or(const char* key, bool fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    fail(key, fmt::format("expected true or false, got {}", value->dump()));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::string_or(const char* key, std::string fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) {
    fail(key, fmt::format("expected a string, got {}", value->dump()));
    return fallback;
  }
  return value->get<std::string>();
}

std::vector<std::string> ConfigReader::strings_or(const char* key,
                                                  std::vector<std::string> fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  std::vector<std::string> out;
  const bool array = value->is_array();
  for (const nlohmann::json& item : array ? *value : nlohmann::json::array()) {
    if (!item.is_string()) {
      fail(key, "expected an array of strings");
      return fallback;
    }
    out.push_back(item.get<std::string>());
  }
  if (!array) fail(key, "expected an array of strings");
  return out;
}

void ConfigReader::require_boolean(const char* key, bool expected, const char* why) {
  if (boolean_or(key, expected) != expected) {
    fail(key, fmt::format("{} is not supported: {}", !expected, why));
  }
}

void ConfigReader::require_string(const char* key, std::initializer_list<const char*> allowed) {
  if (!has(key)) return;
  const std::string value = string_or(key, "");
  for (const char* candidate : allowed) {
    if (value == candidate) return;
  }
  fail(key, fmt::format("'{}' is not supported; supported: {}", value, fmt::join(allowed, ", ")));
}

}  // namespace exode
