// One HTTP answer made of one or more engine requests: submits them, turns their events into a
// JSON answer or into server-sent events, and cancels them when the client leaves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/api.h"
#include "server/api_error.h"
#include "server/frontend.h"
#include "server/http.h"

namespace exode::server {

struct AnswerSpec {
  bool chat = true, stream = false, include_usage = false;
  int32_t n = 1;  // choices per prompt, which count its tokens once
  std::string id, model, fingerprint;
  int64_t created = 0;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // `ticket` is held as long as the answer is in work. The engine and frontend must outlive it.
  Generation(Engine* engine, const Frontend& frontend, Writer writer, AnswerSpec spec,
             std::vector<Prepared> prompts, std::shared_ptr<void> ticket);

  void start();

 private:
  struct Choice {
    Request request;
    std::unique_ptr<OutputStream> output;
    RequestId id = 0;
    bool submitted = false, finished = false, begun = false;
    std::string text, reasoning;  // of an answer in one piece
    const char* reason = "";
    int32_t prompt_tokens = 0, cached_tokens = 0;
  };

  // All of these run on the connection's executor.
  void submit_all();
  void on_event(size_t index, const TokenEvent& event);
  void deliver(size_t index, const std::vector<TextPart>& parts);
  void finish_choice(size_t index, const char* reason);
  void finish_all();
  void fail(const ApiError& error);
  void cancel_all();

  void write_event(std::string_view json);
  std::string delta_json(size_t index, const TextPart& part);
  std::string chunk_head() const;
  std::string chunk_json(size_t index, const std::string& body, const char* reason) const;
  std::string usage_json() const;
  std::string whole_json() const;
  std::string choice_json(size_t index) const;

  Engine* engine_;
  Writer writer_;
  AnswerSpec spec_;
  std::vector<Choice> choices_;
  std::shared_ptr<void> ticket_;
  size_t finished_ = 0;
  bool done_ = false;
};

}  // namespace exode::server
