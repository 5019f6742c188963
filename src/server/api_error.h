// An answer that is an error, in OpenAI's shape: {"error":{"message","type","param","code"}}.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "server/http.h"

namespace exode::server {

struct ApiError {
  int status = 400;
  std::string message = {};
  std::string param = {};                    // empty = null
  std::string code = "invalid_value";        // empty = null
  int64_t prompt_tokens = -1, context = -1;  // extra members of context_length_exceeded
};

// nullopt = success.
using Failure = std::optional<ApiError>;

ApiError bad_value(std::string param, std::string message);
ApiError not_supported(std::string param, std::string what);
ApiError context_exceeded(int64_t prompt_tokens, int64_t tokens_max, int64_t context);
ApiError from_engine(const Error& error);

std::string error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);
HttpResponse json_response(std::string body);

}  // namespace exode::server
