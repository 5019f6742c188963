// Joins a running engine with the text side of its model folder, for the commands that chat.
#pragma once

#include <memory>
#include <optional>

#include "app/model_files.h"
#include "app/session.h"
#include "server/frontend.h"

namespace exode::app {

// Members are used by those after them: the frontend refers to the files and the template.
struct ChatSession {
  ModelFiles files;
  std::optional<text::ChatTemplate> chat_template;  // absent: only raw completions
  std::unique_ptr<Engine> engine;
  std::optional<server::Frontend> frontend;
};

// Loads everything; `chat_template_file` overrides the checkpoint's template when not empty. The
// engine is not started.
Result<std::unique_ptr<ChatSession>> open_chat_session(const EngineConfig& config,
                                                       const std::string& chat_template_file);

}  // namespace exode::app
