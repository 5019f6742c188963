// Chat templates: the Jinja subset that published models use, with the semantics of Jinja2 3.1 in
// the environment Hugging Face compiles with (trim_blocks, lstrip_blocks, immutable sandbox,
// loop controls). Output is a list of spans, so that special-token strings inside user data can be
// tokenised as plain text.
//
//   EXODE_ASSIGN(auto tmpl, text::ChatTemplate::compile(source));
//   auto spans = tmpl.render({{"messages", messages}, {"add_generation_prompt", true}});
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace exode::text {

struct RenderOptions {
  std::optional<std::tm> now;  // what strftime_now formats; the local time when absent
};

class ChatTemplate {
 public:
  // The error names line, column and construct.
  static Result<ChatTemplate> compile(std::string_view source);
  // Source in order: chat_template.jinja, then "chat_template" of tokenizer_config.json (a string,
  // or a list of {name, template}: `tool_use` when with_tools, else `default`). kNotFound if none.
  static Result<std::string> find_source(const std::string& directory, bool with_tools);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `context`: a JSON object with messages, tools, add_generation_prompt, bos_token, eos_token and
  // any chat_template_kwargs. Strings that come from it are data spans, template text is literal.
  // kInvalidArgument with the template's own text for raise_exception, with line and column for
  // errors inside the template; limits on steps, depth and output bytes are errors too.
  Result<std::vector<Span>> render(const nlohmann::ordered_json& context,
                                   const RenderOptions& options = {}) const;
  // Context variables the template reads but does not define.
  std::vector<std::string> variables() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

std::string concat(const std::vector<Span>& spans);

}  // namespace exode::text
