// exode serve: the OpenAI-compatible server.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "app/commands.h"
#include "app/frontend.h"
#include "server/server.h"

namespace exode::app {
namespace {

struct Options {
  EngineOptions engine;
  std::string host = "127.0.0.1", served_model_name, chat_template;
  uint16_t port = 8000;
  int32_t drain_seconds = 30;
  std::string body_limit = "32MiB";
  int32_t connections = 1024;
};

std::string model_name(const Options& o, const std::string& directory) {
  if (!o.served_model_name.empty()) return o.served_model_name;
  return std::filesystem::path(directory).lexically_normal().filename().string();
}

Result<int> run(const Options& o) {
  EXODE_ASSIGN(const EngineConfig config, make_engine_config(o.engine));
  server::ServerConfig server_config;
  server_config.http.host = o.host;
  server_config.http.port = o.port;
  server_config.http.limits.connections = o.connections;
  EXODE_ASSIGN(server_config.http.limits.body_bytes, parse_bytes(o.body_limit));
  server_config.version = EXODE_VERSION;
  server_config.drain_timeout = std::chrono::seconds(o.drain_seconds);
  EXODE_ASSIGN(auto session, open_chat_session(config, o.chat_template));
  server_config.model_name = model_name(o, session->files.directory);
  fmt::print(stderr, "{}", startup_report(session->engine->facts(), session->files.directory));
  session->engine->start();
  EXODE_TRY(server::run_server(
      server_config, session->engine.get(), *session->frontend, [&](uint16_t port) {
        const bool v6 = o.host.find(':') != std::string::npos;
        fmt::print("listening on http://{}{}{}:{}\n", v6 ? "[" : "", o.host, v6 ? "]" : "", port);
        std::fflush(stdout);
      }));
  session->engine->stop();
  return 0;
}

}  // namespace

Run add_serve(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.description("Serve the OpenAI API over HTTP");
  add_engine_options(app, o->engine);
  app.add_option("--host", o->host, "Address to listen on")->capture_default_str();
  app.add_option("--port", o->port, "0 = any free port, printed at start")->capture_default_str();
  app.add_option("--served-model-name", o->served_model_name,
                 "Name in /v1/models (default: the folder's)");
  app.add_option("--chat-template", o->chat_template,
                 "Jinja file instead of the checkpoint's template")
      ->check(CLI::ExistingFile);
  app.add_option("--drain-seconds", o->drain_seconds,
                 "How long running requests may finish at shutdown")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  app.add_option("--body-limit", o->body_limit, "Largest request body")->capture_default_str();
  app.add_option("--max-connections", o->connections)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return [o] { return run(*o); };
}

}  // namespace exode::app
