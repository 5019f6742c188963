#include "server/fields.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

namespace exode::server {

const Json* Fields::find(const char* name) {
  known_.push_back(name);
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<double> Fields::number(const char* name, double low, double high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const double x = value->is_number() ? value->get<double>() : std::nan("");
  if (!(x >= low && x <= high)) {
    fail(name, fmt::format("a number from {} to {}", low, high));
    return std::nullopt;
  }
  return x;
}

std::optional<int64_t> Fields::integer(const char* name, int64_t low, int64_t high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  // Beyond 2^63 the parser keeps an unsigned number, which get<int64_t>() would wrap.
  const bool fits = value->is_number_unsigned()
                        ? value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                        : value->is_number_integer();
  if (!fits || value->get<int64_t>() < low || value->get<int64_t>() > high) {
    fail(name, fmt::format("an integer from {} to {}", low, high));
    return std::nullopt;
  }
  return value->get<int64_t>();
}

std::optional<bool> Fields::boolean(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    fail(name, "true or false");
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::string> Fields::string(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    fail(name, "a string");
    return std::nullopt;
  }
  return value->get<std::string>();
}

const Json* Fields::object(const char* name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_object()) return value;
  fail(name, "an object");
  return nullptr;
}

const Json* Fields::array(const char* name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_array()) return value;
  fail(name, "an array");
  return nullptr;
}

void Fields::refuse_unless(const char* name, const Json& allowed, const char* what) {
  const Json* value = find(name);
  if (value != nullptr && *value != allowed) fail(not_supported(prefix_ + name, what));
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> names;
  for (const auto& item : object_.items()) {
    const bool known = std::any_of(known_.begin(), known_.end(),
                                   [&](const char* name) { return item.key() == name; });
    if (!known) names.push_back(item.key());
  }
  return names;
}

}  // namespace exode::server
