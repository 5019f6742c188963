// The OpenAI-compatible server: routes over a running engine and a frontend.
//
//   server::Frontend frontend(frontend_config, &tokenizer, &chat_template);
//   EXODE_TRY(server::run_server(config, engine.get(), frontend, [](uint16_t port) { … }));
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/api.h"
#include "server/frontend.h"
#include "server/http.h"

namespace exode::server {

struct ServerConfig {
  HttpConfig http;
  std::string model_name;     // what /v1/models lists; requests may leave it out
  std::string version = "0";  // system_fingerprint is "exode-<version>"
  std::chrono::milliseconds drain_timeout{30'000};  // for running requests at shutdown
};

class Server {
 public:
  // Listens. The engine must be started; it and the frontend must outlive the server.
  static Result<std::unique_ptr<Server>> start(const ServerConfig& config, Engine* engine,
                                               const Frontend& frontend);
  virtual ~Server() = default;

  virtual uint16_t port() const = 0;
  // From now on /health and new generations answer 503.
  virtual void begin_drain() = 0;
  // begin_drain(), waits for running requests up to the drain timeout, cancels the rest, closes.
  virtual void stop() = 0;
};

// start(), `listening` with the port, waits for SIGINT or SIGTERM, stop().
Status run_server(const ServerConfig& config, Engine* engine, const Frontend& frontend,
                  const std::function<void(uint16_t port)>& listening);

}  // namespace exode::server
