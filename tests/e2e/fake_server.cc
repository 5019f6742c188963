// `fake_server serve MODEL --port 0` behaves like exode, without a model: for checking the server
// with real clients. The arguments are ignored; the port is any free one.
#include <fmt/format.h>

#include <cstdio>

#include "server/server.h"
#include "unit/server/byte_text.h"
#include "unit/server/fake_engine.h"

int main() {
  using namespace exode;
  using namespace exode::server;
  auto tokenizer = text::Tokenizer::parse(byte_tokenizer_json(), "");
  auto chat_template = text::ChatTemplate::compile(chat_template_source());
  if (!tokenizer.ok() || !chat_template.ok()) return 1;
  FrontendConfig config;
  config.stop_tokens = {kImEnd};
  config.context_max = 512;
  config.vocab = 260;
  const Frontend frontend(config, &tokenizer.value(), &chat_template.value());

  FakeEngine engine;
  engine.pace = std::chrono::milliseconds(1);
  engine.reply = [](const Request&) {
    return to_ids("<think>Hm.</think>\n\nBlue é漢😀.<|im_end|>");
  };
  engine.start();
  ServerConfig server;
  server.http.port = 0;
  server.model_name = "fake";
  const Status done = run_server(server, &engine, frontend, [](uint16_t port) {
    fmt::print("listening on http://127.0.0.1:{}\n", port);
    std::fflush(stdout);
  });
  engine.stop();
  return done.ok() ? 0 : 1;
}
