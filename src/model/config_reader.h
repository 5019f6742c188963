// Typed, range-checked access to one JSON object of a checkpoint's config. The first problem is
// remembered with the field's name, so that a parser reads straight through and checks once:
//
//   ConfigReader r(config, "text_config");
//   c.hidden = r.integer("hidden_size", 1, 1 << 20);
//   EXODE_TRY(r.status());
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace exode {

class ConfigReader {
 public:
  // `json` outlives the reader; `path` prefixes field names in errors ("" = top level).
  ConfigReader(const nlohmann::json& json, std::string path)
      : json_(json), path_(std::move(path)) {}

  bool has(const char* key) const;  // present and not null
  int32_t integer(const char* key, int32_t low, int32_t high);
  int32_t integer_or(const char* key, int32_t low, int32_t high, int32_t fallback);
  double number_or(const char* key, double low, double high, double fallback);
  bool boolean_or(const char* key, bool fallback);
  std::string string_or(const char* key, std::string fallback);
  std::vector<std::string> strings_or(const char* key, std::vector<std::string> fallback);
  // Refuses any other value than `expected` when the field is present.
  void require_boolean(const char* key, bool expected, const char* why);
  void require_string(const char* key, std::initializer_list<const char*> allowed);
  void fail(const char* key, const std::string& problem);
  Status status() const;

 private:
  const nlohmann::json* find(const char* key) const;

  const nlohmann::json& json_;
  std::string path_;
  std::optional<Error> error_;
};

}  // namespace exode
