#include "fixture.h"

namespace exode::server {
ServerTest::ServerTest()
    : tokenizer_(text::Tokenizer::parse(byte_tokenizer_json(), "").value()),
      template_(text::ChatTemplate::compile(chat_template_source()).value()) {
  config_.http.port = 0;
  config_.http.io_threads = 2;
  config_.model_name = "tiny";
  config_.version = "test";
  config_.drain_timeout = std::chrono::milliseconds(300);
  frontend_config_.stop_tokens = {kImEnd};
  frontend_config_.context_max = 512;
  frontend_config_.vocab = 260;
  reply_with("Hello");
}

ServerTest::~ServerTest() {
  if (server_) server_->stop();
  engine_.stop();
}

void ServerTest::start() {
  frontend_ = std::make_unique<Frontend>(frontend_config_, &tokenizer_, &template_);
  engine_.start();
  auto server = Server::start(config_, &engine_, *frontend_);
  ASSERT_TRUE(server.ok()) << server.error().message;
  server_ = std::move(server).value();
}

void ServerTest::reply_with(const std::string& text) {
  engine_.reply = [ids = to_ids(text + "<|im_end|>")](const Request&) { return ids; };
}

std::string ServerTest::chat_body(const std::string& more, const std::string& content) {
  return R"({"model":"tiny","messages":[{"role":"user","content":")" + content + "\"}]" +
         (more.empty() ? "" : "," + more) + "}";
}

Answer ServerTest::chat(const std::string& more, const std::string& content) {
  Client client(server_->port());
  return client.post("/v1/chat/completions", chat_body(more, content));
}

std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  bool done = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    const std::string line = body.substr(at, end - at);
    at = end == std::string::npos ? body.size() : end + 2;
    EXPECT_FALSE(done) << "an event after [DONE]";
    if (line.starts_with(":")) continue;
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    if (line == "data: [DONE]") {
      done = true;
      continue;
    }
    events.push_back(Json::parse(line.substr(6)));
  }
  EXPECT_TRUE(done || (!events.empty() && events.back().contains("error")));
  return events;
}

std::string joined(const std::vector<Json>& events, const std::string& field, int index) {
  std::string text;
  for (const Json& event : events) {
    if (!event.contains("choices")) continue;
    for (const Json& choice : event["choices"]) {
      if (choice["index"] != index) continue;
      const Json& holder = choice.contains("delta") ? choice["delta"] : choice;
      if (holder.contains(field)) text += holder[field].get<std::string>();
    }
  }
  return text;
}

}  // namespace exode::server
