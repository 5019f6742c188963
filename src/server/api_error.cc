#include "server/api_error.h"

#include "server/json.h"

namespace exode::server {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 503:
      return "unavailable_error";
    default:
      return "invalid_request_error";
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

ApiError bad_value(std::string param, std::string message) {
  return {.message = std::move(message), .param = std::move(param)};
}

ApiError not_supported(std::string param, std::string what) {
  return {.message = "'" + param + "': " + std::move(what) + " not supported by this server.",
          .param = param,
          .code = "unsupported_parameter"};
}

ApiError context_exceeded(int64_t prompt_tokens, int64_t tokens_max, int64_t context) {
  std::string message = "This model's maximum context length is " + std::to_string(context) +
                        " tokens. However, your request has " + std::to_string(prompt_tokens) +
                        " input tokens";
  if (tokens_max > 1) message += " and asks for " + std::to_string(tokens_max) + " output tokens";
  message += ". Shorten the prompt or ask for fewer tokens.";
  return {.message = std::move(message),
          .param = "messages",
          .code = "context_length_exceeded",
          .prompt_tokens = prompt_tokens,
          .context = context};
}

ApiError from_engine(const Error& error) {
  switch (error.code) {
    case ErrorCode::kBusy:
      return {.status = 429, .message = error.message, .code = "queue_full"};
    case ErrorCode::kInvalidArgument:
      return {.message = error.message};
    default:
      return {.status = 500, .message = error.message, .code = "engine_error"};
  }
}

std::string error_json(const ApiError& error) {
  Json body = {{"message", error.message},
               {"type", type_of(error.status)},
               {"param", text_or_null(error.param)},
               {"code", text_or_null(error.code)}};
  if (error.context >= 0) {
    body["n_prompt_tokens"] = error.prompt_tokens;
    body["n_ctx"] = error.context;
  }
  return dump_json(Json{{"error", std::move(body)}});
}

HttpResponse json_response(std::string body) {
  return {.headers = {{"Content-Type", "application/json"}}, .body = std::move(body)};
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response = json_response(error_json(error));
  response.status = error.status;
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace exode::server
