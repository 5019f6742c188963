// Result<T>: a value, or an Error that says what failed, where, and what to do about it.
//
//   Result<Config> config = parse_config(text);
//   if (!config.ok()) return config.error();
//   use(config.value());
//
// For failures the world can cause. Our own bugs go to EXODE_CHECK (base/check.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace exode {

enum class ErrorCode : uint8_t {
  kInvalidArgument,
  kNotFound,
  kUnsupported,
  kOutOfMemory,
  kBusy,
  kIo,
  kCancelled,
};

struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
};

inline Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}
inline Error not_found(std::string message) { return {ErrorCode::kNotFound, std::move(message)}; }
inline Error unsupported(std::string message) {
  return {ErrorCode::kUnsupported, std::move(message)};
}
inline Error io_error(std::string message) { return {ErrorCode::kIo, std::move(message)}; }

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : v_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : v_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return v_.index() == 0; }
  T& value() & { return require(), std::get<0>(v_); }
  const T& value() const& { return require(), std::get<0>(v_); }
  T&& value() && { return require(), std::get<0>(std::move(v_)); }
  const Error& error() const { return std::get<1>(v_); }

 private:
  void require() const { EXODE_CHECK(ok(), std::get<1>(v_).message); }
  std::variant<T, Error> v_;
};

// Success without a value.
struct Done {};
using Status = Result<Done>;

}  // namespace exode

// Returns the error of a Result or Status expression from the enclosing function.
#define EXODE_TRY(expression)                                                     \
  do {                                                                            \
    if (auto exode_try = (expression); !exode_try.ok()) return exode_try.error(); \
  } while (false)

// EXODE_ASSIGN(auto x, make_x()): declares x from the value, or returns the error.
#define EXODE_CONCAT_INNER(a, b) a##b
#define EXODE_CONCAT(a, b) EXODE_CONCAT_INNER(a, b)
#define EXODE_ASSIGN(declaration, expression)                \
  auto EXODE_CONCAT(exode_result_, __LINE__) = (expression); \
  if (!EXODE_CONCAT(exode_result_, __LINE__).ok())           \
    return EXODE_CONCAT(exode_result_, __LINE__).error();    \
  declaration = std::move(EXODE_CONCAT(exode_result_, __LINE__)).value()
