// exode chat: one question, or a conversation in the terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "app/commands.h"
#include "app/frontend.h"

namespace exode::app {
namespace {

struct Options {
  EngineOptions engine;
  SamplingOptions sampling;
  std::string prompt, system, chat_template;
  int32_t max_tokens = 1024;
  bool think = false;
};

// Prints parts as they come: thoughts dim on a terminal, the answer plain.
class Printer {
 public:
  void print(const std::vector<server::TextPart>& parts) {
    for (const server::TextPart& part : parts) {
      style(part.reasoning);
      fmt::print("{}", part.text);
      (part.reasoning ? thought_ : answer_) += part.text;
    }
    std::fflush(stdout);
  }
  void end() {
    style(false);
    fmt::print("\n");
    std::fflush(stdout);
  }
  const std::string& answer() const { return answer_; }
  const std::string& thought() const { return thought_; }

 private:
  void style(bool dim) {
    if (dim == dim_) return;
    dim_ = dim;
    if (terminal_) fmt::print("{}", dim ? "\033[2m" : "\033[0m");
    if (!dim) fmt::print("\n\n");  // the answer starts below the thought
  }
  const bool terminal_ = isatty(STDOUT_FILENO) == 1;
  bool dim_ = false;
  std::string answer_, thought_;
};

class Conversation {
 public:
  Conversation(ChatSession& session, const Options& options) : session_(session), o_(options) {
    if (!o_.system.empty()) messages_.push_back({{"role", "system"}, {"content", o_.system}});
  }

  // The exit code: 0, or 130 when interrupted.
  Result<int> ask(const std::string& question) {
    messages_.push_back({{"role", "user"}, {"content", question}});
    server::ChatRequest chat;
    chat.messages = messages_;
    chat.template_kwargs = {{"enable_thinking", o_.think}};
    chat.generation.tokens_max = o_.max_tokens;
    std::vector<server::Prepared> prepared;
    if (const server::Failure failure = session_.frontend->prepare(chat, &prepared)) {
      return invalid(failure->message);
    }
    Request request = prepared[0].request;
    request.sampling = make_sampling(o_.sampling, default_sampling(session_.files.generation));
    const auto stream = session_.frontend->open(prepared[0].output);
    Printer printer;
    EXODE_ASSIGN(
        const Generation g,
        generate(
            *session_.engine, std::move(request),
            [&](TokenId id) { printer.print(stream->feed(std::span(&id, 1))); }, interrupted));
    printer.print(stream->finish());
    printer.end();
    if (g.finish == FinishReason::kError) return Error{ErrorCode::kIo, g.error};
    messages_.push_back({{"role", "assistant"}, {"content", printer.answer()}});
    if (!printer.thought().empty()) messages_.back()["reasoning_content"] = printer.thought();
    return g.finish == FinishReason::kCancelled ? 130 : 0;
  }

 private:
  ChatSession& session_;
  const Options& o_;
  server::Json messages_ = server::Json::array();
};

Result<int> converse(Conversation& conversation) {
  const bool terminal = isatty(STDIN_FILENO) == 1;
  std::string line;
  while (!interrupted()) {
    if (terminal) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    EXODE_ASSIGN(const int code, conversation.ask(line));
    if (code != 0) return code;
  }
  return 0;
}

Result<int> run(const Options& o) {
  EXODE_ASSIGN(EngineConfig config, make_engine_config(o.engine));
  config.max_num_seqs = 1;
  EXODE_ASSIGN(auto session, open_chat_session(config, o.chat_template));
  if (!session->chat_template) {
    return invalid(
        fmt::format("{} has no chat template; give one with --chat-template", config.model));
  }
  install_interrupt_handler();
  session->engine->start();
  Conversation conversation(*session, o);
  return o.prompt.empty() ? converse(conversation) : conversation.ask(o.prompt);
}

}  // namespace

Run add_chat(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.description("Chat in the terminal: one --prompt, or line by line from standard input");
  add_engine_options(app, o->engine);
  add_sampling_options(app, o->sampling);
  app.add_option("--prompt", o->prompt, "Ask this and exit");
  app.add_option("--system", o->system, "System message");
  app.add_option("--max-tokens", o->max_tokens, "Of one answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--chat-template", o->chat_template,
                 "Jinja file instead of the checkpoint's template")
      ->check(CLI::ExistingFile);
  app.add_flag("--think", o->think, "Let the model think first (enable_thinking)");
  return [o] { return run(*o); };
}

}  // namespace exode::app
