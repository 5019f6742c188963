// Reads members of a JSON request: null counts as absent, a wrong type or range is an error that
// names the member. The first error stays; later reads go on harmlessly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/json.h"

namespace exode::server {

class Fields {
 public:
  // `prefix` comes before member names in errors ("stream_options.").
  explicit Fields(const Json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  const Json* find(const char* name);  // nullptr when absent or null
  std::optional<double> number(const char* name, double low, double high);
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high);
  std::optional<bool> boolean(const char* name);
  std::optional<std::string> string(const char* name);
  const Json* object(const char* name);
  const Json* array(const char* name);

  // The member may be absent, null or equal to `allowed`; any other value is refused.
  void refuse_unless(const char* name, const Json& allowed, const char* what);

  void fail(ApiError error) {
    if (!failure_) failure_ = std::move(error);
  }
  void fail(const char* name, const std::string& expected) {
    fail(bad_value(prefix_ + name, "'" + prefix_ + name + "' must be " + expected + "."));
  }
  const Failure& failure() const { return failure_; }
  std::vector<std::string> unknown() const;  // members that nobody asked for

 private:
  const Json& object_;
  std::string prefix_;
  Failure failure_;
  std::vector<const char*> known_;
};

}  // namespace exode::server
