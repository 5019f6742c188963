#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/mapped_file.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/unicode.h"

namespace exode::text {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

std::string at(const jinja::Position& position, std::string_view message) {
  return fmt::format("line {}, column {}: {}", position.line, position.column, message);
}

std::vector<Span> to_spans(const jinja::TextBuilder& output) {
  std::vector<Span> spans;
  spans.reserve(output.marks().size());
  size_t begin = 0;
  for (const jinja::Mark& mark : output.marks()) {
    spans.push_back({output.text().substr(begin, mark.end - begin), mark.literal});
    begin = mark.end;
  }
  return spans;
}

// The entry of a list of {name, template}; tools prefer `tool_use`.
Result<std::string> pick_named(const nlohmann::json& list, bool with_tools) {
  const auto find = [&](std::string_view name) -> const nlohmann::json* {
    for (const nlohmann::json& entry : list) {
      const bool complete = entry.is_object() && entry.contains("name") &&
                            entry.contains("template") && entry["template"].is_string();
      if (complete && entry["name"] == name) return &entry["template"];
    }
    return nullptr;
  };
  const nlohmann::json* source = with_tools ? find("tool_use") : nullptr;
  if (source == nullptr) source = find("default");
  if (source != nullptr) return source->get<std::string>();
  return not_found("tokenizer_config.json: chat_template has no entry named 'default'");
}

}  // namespace

struct ChatTemplate::Impl {
  std::unique_ptr<jinja::Program> program;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::compile(std::string_view source) {
  if (source.size() > jinja::kSourceBytesMax) {
    return invalid(fmt::format("chat template exceeds {} MiB", jinja::kSourceBytesMax >> 20));
  }
  if (!is_valid_utf8(source)) return invalid("chat template is not UTF-8");
  try {
    auto impl = std::make_unique<Impl>();
    impl->program = jinja::parse(source);
    return ChatTemplate(std::move(impl));
  } catch (const jinja::SyntaxError& error) {
    return invalid("chat template: " + at(error.position, error.message));
  } catch (const jinja::RenderError& error) {
    return invalid("chat template: " + error.message);  // the program exceeds its memory
  }
}

Result<std::vector<Span>> ChatTemplate::render(const nlohmann::ordered_json& context,
                                               const RenderOptions& options) const {
  if (!context.is_object()) return invalid("the context of a chat template must be an object");
  jinja::Interpreter interpreter(*impl_->program, context, options.now.value_or(local_time()));
  try {
    return to_spans(interpreter.run());
  } catch (const jinja::RenderError& error) {
    if (error.raised_by_template) return invalid(error.message);
    return invalid(at(interpreter.position(), error.message));
  }
}

std::vector<std::string> ChatTemplate::variables() const {
  const jinja::Program& program = *impl_->program;
  std::vector<std::string> names;
  for (size_t i = 0; i < program.symbols.size(); ++i) {
    if (program.global[i]) names.push_back(program.symbols[i]);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> ChatTemplate::find_source(const std::string& directory, bool with_tools) {
  auto file = read_text_file(directory + "/chat_template.jinja", jinja::kSourceBytesMax);
  if (file.ok() || file.error().code != ErrorCode::kNotFound) return file;
  const std::string path = directory + "/tokenizer_config.json";
  auto text = read_text_file(path, kConfigBytesMax);
  if (!text.ok()) {
    if (text.error().code != ErrorCode::kNotFound) return text.error();
    return not_found(
        fmt::format("{}: neither chat_template.jinja nor tokenizer_config.json; "
                    "give a template file",
                    directory));
  }
  const nlohmann::json config = nlohmann::json::parse(text.value(), nullptr, false);
  if (!config.is_object()) return invalid(path + ": not a JSON object");
  const auto it = config.find("chat_template");
  if (it != config.end() && it->is_string()) return it->get<std::string>();
  if (it != config.end() && it->is_array()) return pick_named(*it, with_tools);
  return not_found(fmt::format("{}: no chat_template; give a template file", path));
}

std::string concat(const std::vector<Span>& spans) {
  std::string out;
  for (const Span& span : spans) out += span.text;
  return out;
}

}  // namespace exode::text
