#include "server/generation.h"

#include <fmt/format.h>
#include <algorithm>

#include "server/json.h"

namespace exode::server {

Generation::Generation(Engine* engine, const Frontend& frontend, Writer writer, AnswerSpec spec,
                       std::vector<Prepared> prompts, std::shared_ptr<void> ticket)
    : engine_(engine),
      writer_(std::move(writer)),
      spec_(std::move(spec)),
      ticket_(std::move(ticket)) {
  for (Prepared& prompt : prompts) {
    Choice choice;
    choice.prompt_tokens = static_cast<int32_t>(prompt.request.prompt.size());
    choice.output = frontend.open(prompt.output);
    choice.request = std::move(prompt.request);
    choices_.push_back(std::move(choice));
  }
}

void Generation::start() {
  writer_->on_close([self = shared_from_this()] { self->cancel_all(); });
  writer_->post([self = shared_from_this()] { self->submit_all(); });
}

void Generation::submit_all() {
  if (done_) return;
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    auto sink = [self = shared_from_this(), i](TokenEvent event) {
      self->writer_->post([self, i, event = std::move(event)] { self->on_event(i, event); });
    };
    auto id = engine_->submit(std::move(choice.request), std::move(sink));
    if (!id.ok()) return fail(from_engine(id.error()));
    choice.id = id.value();
    choice.submitted = true;
  }
  if (!spec_.stream) return;
  HttpResponse head;
  head.headers = {{"Content-Type", "text/event-stream; charset=utf-8"},
                  {"Cache-Control", "no-cache"},
                  {"X-Accel-Buffering", "no"}};
  writer_->start_stream(std::move(head), ": ping\n\n");
}

void Generation::on_event(size_t index, const TokenEvent& event) {
  Choice& choice = choices_[index];
  if (done_ || choice.finished) return;
  if (event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled) {
    const bool error = event.finish == FinishReason::kError;
    choice.finished = true;
    return fail({.status = 500,
                 .message = error ? "The engine failed: " + event.error
                                  : "The request was cancelled by the server.",
                 .code = error ? "engine_error" : "cancelled"});
  }
  choice.cached_tokens = std::max(choice.cached_tokens, event.cached_tokens);
  deliver(index, choice.output->feed(event.tokens));
  if (done_) return;
  if (event.finish == FinishReason::kNone) {
    if (!choice.output->stopped()) return;
    engine_->cancel(choice.id);
    return finish_choice(index, "stop");
  }
  if (!choice.output->stopped()) deliver(index, choice.output->finish());
  if (done_) return;
  const bool stop = event.finish == FinishReason::kStop || choice.output->stopped();
  finish_choice(index, stop ? "stop" : "length");
}

void Generation::deliver(size_t index, const std::vector<TextPart>& parts) {
  Choice& choice = choices_[index];
  for (const TextPart& part : parts) {
    if (done_ || part.text.empty()) continue;
    if (spec_.stream) {
      write_event(chunk_json(index, delta_json(index, part), nullptr));
    } else {
      (part.reasoning ? choice.reasoning : choice.text) += part.text;
    }
  }
}

void Generation::finish_choice(size_t index, const char* reason) {
  Choice& choice = choices_[index];
  choice.finished = true;
  choice.reason = reason;
  if (spec_.stream) {
    if (spec_.chat && !choice.begun) {
      write_event(chunk_json(index, delta_json(index, {}), nullptr));
    }
    write_event(chunk_json(index, spec_.chat ? "\"delta\":{}" : "\"text\":\"\"", reason));
  }
  if (++finished_ == choices_.size() && !done_) finish_all();
}

void Generation::finish_all() {
  done_ = true;
  if (!spec_.stream) {
    writer_->send(json_response(whole_json()));
  } else {
    std::string tail;
    if (spec_.include_usage) {
      tail = "data: " + chunk_head() + "[],\"usage\":" + usage_json() + "}\n\n";
    }
    writer_->write(tail + "data: [DONE]\n\n");
    writer_->end();
  }
  ticket_.reset();
}

void Generation::fail(const ApiError& error) {
  if (done_) return;
  cancel_all();
  // Choices are submitted before the stream starts, so an unsubmitted one means no head was sent.
  if (spec_.stream && choices_.back().submitted) {
    writer_->write("data: " + error_json(error) + "\n\n");
    writer_->end();
  } else {
    writer_->send(error_response(error));
  }
}

void Generation::cancel_all() {
  done_ = true;
  for (const Choice& choice : choices_) {
    if (choice.submitted && !choice.finished) engine_->cancel(choice.id);
  }
  ticket_.reset();
}

void Generation::write_event(std::string_view json) {
  if (done_) return;
  std::string event = "data: ";
  event += json;
  event += "\n\n";
  if (writer_->write(event)) return;
  cancel_all();
  writer_->abort();
}

std::string Generation::chunk_head() const {
  std::string out = "{\"id\":\"" + spec_.id + "\",\"object\":\"";
  out += spec_.chat ? "chat.completion.chunk" : "text_completion";
  out += "\",\"created\":" + std::to_string(spec_.created) + ",\"model\":";
  append_json_string(&out, spec_.model);
  out += ",\"system_fingerprint\":";
  append_json_string(&out, spec_.fingerprint);
  return out += ",\"choices\":";
}

std::string Generation::chunk_json(size_t index, const std::string& body,
                                   const char* reason) const {
  std::string out = chunk_head() + "[{\"index\":" + std::to_string(index) + ',' + body;
  out += ",\"logprobs\":null,\"finish_reason\":";
  out += reason == nullptr ? "null" : '"' + std::string(reason) + '"';
  out += spec_.include_usage ? "}],\"usage\":null}" : "}]}";
  return out;
}

std::string Generation::delta_json(size_t index, const TextPart& part) {
  std::string out = spec_.chat ? "\"delta\":{" : "\"text\":";
  if (!spec_.chat) {
    append_json_string(&out, part.text);
    return out;
  }
  Choice& choice = choices_[index];
  if (!choice.begun) {
    // Clients take the type of content from the first chunk: it must be there.
    out += "\"role\":\"assistant\"";
    if (part.reasoning || part.text.empty()) out += ",\"content\":\"\"";
    if (!part.text.empty()) out += ',';
    choice.begun = true;
  }
  if (!part.text.empty()) {
    std::string text;
    append_json_string(&text, part.text);
    out += part.reasoning ? "\"reasoning\":" + text + ",\"reasoning_content\":" + text
                          : "\"content\":" + text;
  }
  return out += '}';
}

std::string Generation::usage_json() const {
  int64_t prompt = 0, cached = 0, output = 0, reasoning = 0;
  for (const Choice& choice : choices_) {
    prompt += choice.prompt_tokens;
    cached += choice.cached_tokens;
    output += choice.output->tokens();
    reasoning += choice.output->reasoning_tokens();
  }
  prompt /= spec_.n;
  cached /= spec_.n;
  return fmt::format(R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                     R"("prompt_tokens_details":{{"cached_tokens":{}}},)"
                     R"("completion_tokens_details":{{"reasoning_tokens":{}}}}})",
                     prompt, output, prompt + output, cached, reasoning);
}

std::string Generation::choice_json(size_t index) const {
  const Choice& choice = choices_[index];
  std::string out = "{\"index\":" + std::to_string(index);
  if (spec_.chat) {
    out += ",\"message\":{\"role\":\"assistant\",\"content\":";
    // A thought without an answer has no content; no text at all is an empty one.
    if (choice.text.empty() && !choice.reasoning.empty()) {
      out += "null";
    } else {
      append_json_string(&out, choice.text);
    }
    out += ",\"refusal\":null";
    if (!choice.reasoning.empty()) {
      std::string text;
      append_json_string(&text, choice.reasoning);
      out += ",\"reasoning\":" + text + ",\"reasoning_content\":" + text;
    }
    out += '}';
  } else {
    out += ",\"text\":";
    append_json_string(&out, choice.text);
  }
  return out + ",\"logprobs\":null,\"finish_reason\":\"" + choice.reason + "\"}";
}

std::string Generation::whole_json() const {
  std::string out = "{\"id\":\"" + spec_.id + "\",\"object\":\"";
  out += spec_.chat ? "chat.completion" : "text_completion";
  out += "\",\"created\":" + std::to_string(spec_.created) + ",\"model\":";
  append_json_string(&out, spec_.model);
  out += ",\"system_fingerprint\":";
  append_json_string(&out, spec_.fingerprint);
  out += ",\"choices\":[";
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (i > 0) out += ',';
    out += choice_json(i);
  }
  return out + "],\"usage\":" + usage_json() + "}";
}

}  // namespace exode::server
