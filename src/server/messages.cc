#include <fmt/format.h>

#include "server/fields.h"
#include "server/openai.h"

namespace exode::server {
namespace {

constexpr size_t kMessagesMax = 10'000;

Failure read_content(const Json& content, const std::string& where, Json* out) {
  if (content.is_null() || content.is_string()) {
    *out = content.is_null() ? Json("") : content;
    return std::nullopt;
  }
  if (!content.is_array()) {
    return bad_value(where, "'" + where + "' must be a string, null or an array of text parts.");
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string at = fmt::format("{}[{}]", where, i);
    if (part.is_string()) {
      text += part.get<std::string>();
      continue;
    }
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
      return bad_value(at, "'" + at + "' must be an object with a 'type'.");
    }
    const std::string type = part["type"].get<std::string>();
    if (type != "text" && type != "refusal") {
      return not_supported(at, "content parts of type '" + type + "' are");
    }
    if (!part.contains(type) || !part[type].is_string()) {
      return bad_value(at, "'" + at + "." + type + "' must be a string.");
    }
    text += part[type].get<std::string>();
  }
  *out = text;
  return std::nullopt;
}

Failure read_tool_call(const Json& call, const std::string& where, Json* out) {
  const auto function = call.is_object() ? call.find("function") : call.end();
  if (!call.is_object() || function == call.end() || !function->is_object() ||
      !function->contains("name") || !(*function)["name"].is_string()) {
    return bad_value(where, "'" + where + "' must be {id, type, function: {name, arguments}}.");
  }
  Json arguments = Json::object();
  if (function->contains("arguments")) arguments = (*function)["arguments"];
  if (arguments.is_string()) {
    const auto text = arguments.get<std::string>();
    auto parsed = parse_json(text.empty() ? "{}" : text);
    arguments = parsed.ok() ? std::move(parsed).value() : Json(nullptr);
  }
  if (!arguments.is_object()) {
    return bad_value(where + ".function.arguments",
                     "'" + where + ".function.arguments' must be a JSON object in a string.");
  }
  *out = call;
  (*out)["function"]["arguments"] = std::move(arguments);
  return std::nullopt;
}

Failure read_tool_calls(const Json& calls, const std::string& where, Json* out) {
  if (!calls.is_array()) return bad_value(where, "'" + where + "' must be an array.");
  *out = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    Json call;
    if (Failure f = read_tool_call(calls[i], fmt::format("{}[{}]", where, i), &call)) return f;
    out->push_back(std::move(call));
  }
  return std::nullopt;
}

Failure read_role(Fields& fields, const std::string& where, std::string* role) {
  *role = fields.string("role").value_or("");
  if (fields.failure()) return fields.failure();
  if (*role == "developer") *role = "system";
  if (*role == "function") *role = "tool";
  if (*role == "system" || *role == "user" || *role == "assistant" || *role == "tool") {
    return std::nullopt;
  }
  return bad_value(where + ".role", "'" + where +
                                        ".role' must be one of system, developer, user, "
                                        "assistant, tool.");
}

Failure read_message(const Json& message, const std::string& where, Json* out) {
  if (!message.is_object()) return bad_value(where, "'" + where + "' must be an object.");
  Fields fields(message, where + ".");
  std::string role;
  if (Failure f = read_role(fields, where, &role)) return f;
  *out = Json{{"role", role}};
  const Json* content = fields.find("content");
  if (content == nullptr && (role == "user" || role == "system")) {
    return bad_value(where + ".content", "'" + where + ".content' is missing.");
  }
  Json& text = (*out)["content"];
  if (Failure f = read_content(content ? *content : Json(), where + ".content", &text)) return f;
  if (role == "assistant") {
    auto reasoning = fields.string("reasoning_content");
    const auto newer = fields.string("reasoning");
    if (!reasoning) reasoning = newer;
    if (reasoning) (*out)["reasoning_content"] = *reasoning;
    const Json* calls = fields.find("tool_calls");
    if (calls != nullptr && !calls->empty()) {
      if (Failure f = read_tool_calls(*calls, where + ".tool_calls", &(*out)["tool_calls"])) {
        return f;
      }
    }
  }
  for (const char* name : {"name", "tool_call_id"}) {
    if (const auto value = fields.string(name)) (*out)[name] = *value;
  }
  return fields.failure();
}

}  // namespace

Failure normalise_messages(const Json& messages, Json* out) {
  if (!messages.is_array() || messages.empty()) {
    return bad_value("messages", "'messages' must be an array with at least one message.");
  }
  if (messages.size() > kMessagesMax) {
    return bad_value("messages", fmt::format("'messages' may hold at most {}.", kMessagesMax));
  }
  *out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Json message;
    if (Failure f = read_message(messages[i], fmt::format("messages[{}]", i), &message)) return f;
    const bool joins =
        out->size() == 1 && out->front()["role"] == "system" && message["role"] == "system";
    if (joins) {
      Json& content = out->front()["content"];
      content = content.get<std::string>() + "\n\n" + message["content"].get<std::string>();
    } else {
      out->push_back(std::move(message));
    }
  }
  return std::nullopt;
}

Failure normalise_tools(const Json& tools, Json* out) {
  *out = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const std::string where = fmt::format("tools[{}]", i);
    if (!tool.is_object() || tool.value("type", Json()) != "function" ||
        !tool.contains("function") || !tool["function"].is_object() ||
        !tool["function"].contains("name") || !tool["function"]["name"].is_string()) {
      return bad_value(where, "'" + where + "' must be {type: \"function\", function: {name, …}}.");
    }
    const Json& from = tool["function"];
    Json function = Json::object();
    for (const char* name : {"name", "description", "parameters"}) {
      if (from.contains(name) && !from[name].is_null()) function[name] = from[name];
    }
    for (const auto& item : from.items()) {
      if (!item.value().is_null()) function[item.key()] = item.value();
    }
    out->push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return std::nullopt;
}

}  // namespace exode::server
