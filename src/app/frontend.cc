#include "app/frontend.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/mapped_file.h"

namespace exode::app {
namespace {

constexpr size_t kTemplateBytesMax = 1 << 20;

Status load_template(const std::string& file, ChatSession& session) {
  if (!file.empty()) {
    EXODE_ASSIGN(const std::string source, read_text_file(file, kTemplateBytesMax));
    EXODE_ASSIGN(session.chat_template, text::ChatTemplate::compile(source));
    return Done{};
  }
  const auto source = text::ChatTemplate::find_source(session.files.directory, false);
  if (!source.ok() && source.error().code == ErrorCode::kNotFound) {
    log_warn("template", fmt::format("{}; chat requests will be refused", source.error().message));
    return Done{};
  }
  if (!source.ok()) return source.error();
  auto compiled = text::ChatTemplate::compile(source.value());
  if (!compiled.ok()) {
    return invalid(fmt::format("{}: chat template: {}; give another with --chat-template",
                               session.files.directory, compiled.error().message));
  }
  session.chat_template = std::move(compiled).value();
  return Done{};
}

}  // namespace

Result<std::unique_ptr<ChatSession>> open_chat_session(const EngineConfig& config,
                                                       const std::string& chat_template_file) {
  auto session = std::make_unique<ChatSession>();
  EXODE_ASSIGN(session->files, open_model_files(config.model));
  if (!session->files.tokenizer) {
    return invalid(
        fmt::format("{} has no tokenizer.json; it cannot be served as text", config.model));
  }
  EXODE_TRY(load_template(chat_template_file, *session));
  EXODE_ASSIGN(session->engine, open_engine(config, session->files));
  const text::GenerationConfig& g = session->files.generation;
  const text::Tokenizer& tokenizer = *session->files.tokenizer;
  const EngineFacts& facts = session->engine->facts();
  session->frontend.emplace(
      server::FrontendConfig{.defaults = {.temperature = g.temperature,
                                          .top_p = g.top_p,
                                          .min_p = g.min_p,
                                          .repetition_penalty = g.repetition_penalty,
                                          .top_k = g.top_k},
                             .stop_tokens = g.stop_tokens,
                             .context_max = facts.context_max,
                             .vocab = std::min(facts.vocab, tokenizer.size())},
      &tokenizer, session->chat_template ? &*session->chat_template : nullptr);
  return session;
}

}  // namespace exode::app
