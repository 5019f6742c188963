#include "server/server.h"

#include <fmt/format.h>
#include <atomic>
#include <ctime>
#include <random>
#include <thread>

#include "base/log.h"
#include "server/fields.h"
#include "server/generation.h"
#include "server/json.h"

namespace exode::server {
namespace {

using Milliseconds = std::chrono::milliseconds;

std::string new_id(const char* prefix) {
  std::random_device device;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

HttpResponse layer_error(int status, std::string message) {
  const char* code = status == 413   ? "request_too_large"
                     : status == 431 ? "headers_too_large"
                     : status == 408 ? "request_timeout"
                     : status == 503 ? "too_many_connections"
                                     : "invalid_request";
  return error_response({.status = status, .message = std::move(message), .code = code});
}

HttpResponse route_error(int status, const HttpRequest& request) {
  if (status == 405) {
    return error_response({.status = 405,
                           .message = request.method + " is not allowed on " + request.path + ".",
                           .code = "method_not_allowed"});
  }
  std::string message = "No such path: " + request.path.substr(0, 256) + ".";
  if (request.path.starts_with("/v1/v1/")) {
    message += " Did you mean " + request.path.substr(3, 256) + "?";
  }
  return error_response({.status = 404, .message = std::move(message), .code = "not_found"});
}

class OpenAiServer final : public Server {
 public:
  OpenAiServer(const ServerConfig& config, Engine* engine, const Frontend& frontend)
      : config_(config),
        engine_(engine),
        frontend_(frontend),
        router_(route_error),
        started_(std::time(nullptr)) {
    add_routes();
  }
  ~OpenAiServer() override { http_.reset(); }

  Status listen() {
    auto handler = [this](HttpRequest request, Writer writer) {
      try {
        router_.handle(std::move(request), writer);
      } catch (const std::exception& e) {
        log_error("http", std::string("handler: ") + e.what());
        writer->send(error_response(
            {.status = 500, .message = "Internal server error.", .code = "internal_error"}));
      }
    };
    EXODE_ASSIGN(http_, HttpServer::listen(config_.http, std::move(handler), layer_error));
    return Done{};
  }

  uint16_t port() const override { return http_->port(); }
  void begin_drain() override { draining_ = true; }

  void stop() override {
    begin_drain();
    const auto deadline = std::chrono::steady_clock::now() + config_.drain_timeout;
    // Health checks are answered meanwhile, so the socket stays open until the work is done.
    while (tickets_.use_count() > 1 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(Milliseconds(5));
    }
    http_->stop_accepting();
    if (tickets_.use_count() <= 1) http_->wait_idle(Milliseconds(1000));
    http_->close_all();
    http_->wait_idle(Milliseconds(1000));
  }

 private:
  void add_routes() {
    const auto health = [this](const HttpRequest&, const Writer& w) { w->send(this->health()); };
    for (const char* path : {"/health", "/v1/health", "/ready"}) router_.add("GET", path, health);
    router_.add("GET", "/", [](const HttpRequest&, const Writer& w) {
      w->send({.headers = {{"Content-Type", "text/plain; charset=utf-8"}},
               .body = "exode is running. The API is under /v1.\n"});
    });
    router_.add("GET", "/version", [this](const HttpRequest&, const Writer& w) {
      w->send(json_response(dump_json({{"version", config_.version}})));
    });
    router_.add("GET", "/v1/models", [this](const HttpRequest&, const Writer& w) {
      w->send(
          json_response(dump_json({{"object", "list"}, {"data", Json::array({model_json()})}})));
    });
    router_.add("GET", "/v1/models/", [this](const HttpRequest& r, const Writer& w) {
      const std::string name = r.path.substr(std::string_view("/v1/models/").size());
      Failure f = check_model(name);
      w->send(f ? error_response(*f) : json_response(dump_json(model_json())));
    });
    add_post("/v1/chat/completions",
             [this](const Json& body, const Writer& w) { return chat(body, w); });
    add_post("/v1/completions",
             [this](const Json& body, const Writer& w) { return completion(body, w); });
    add_post("/tokenize", [this](const Json& body, const Writer& w) { return tokenize(body, w); });
    add_post("/detokenize",
             [this](const Json& body, const Writer& w) { return detokenize(body, w); });
  }

  template <class Function>
  void add_post(const char* path, Function function) {
    router_.add("POST", path, [function](const HttpRequest& request, const Writer& writer) {
      const auto body = parse_json(request.body);
      Failure f;
      if (body.ok()) {
        f = function(body.value(), writer);
      } else {
        f = ApiError{.message = body.error().message, .code = "invalid_json"};
      }
      if (f) writer->send(error_response(*f));
    });
  }

  HttpResponse health() const {
    if (!draining_) return json_response("{\"status\":\"ok\"}");
    return error_response(draining());
  }
  static ApiError draining() {
    return {.status = 503, .message = "The server is shutting down.", .code = "draining"};
  }

  Json model_json() const {
    return {{"id", config_.model_name},
            {"object", "model"},
            {"created", started_},
            {"owned_by", "exode"},
            {"root", config_.model_name},
            {"parent", nullptr},
            {"max_model_len", frontend_.config().context_max}};
  }

  Failure check_model(const std::string& name) const {
    if (name.empty() || name == config_.model_name) return std::nullopt;
    return ApiError{.status = 404,
                    .message = "The model '" + name.substr(0, 256) +
                               "' does not exist; this server has '" + config_.model_name + "'.",
                    .param = "model",
                    .code = "model_not_found"};
  }

  void generate(const GenerationFields& fields, bool is_chat, std::vector<Prepared> prompts,
                const Writer& writer) {
    AnswerSpec spec;
    spec.chat = is_chat;
    spec.stream = fields.stream;
    spec.include_usage = fields.include_usage;
    spec.n = fields.n;
    spec.id = new_id(is_chat ? "chatcmpl-" : "cmpl-");
    spec.model = fields.model.empty() ? config_.model_name : fields.model;
    spec.fingerprint = "exode-" + config_.version;
    spec.created = std::time(nullptr);
    std::make_shared<Generation>(engine_, frontend_, writer, std::move(spec), std::move(prompts),
                                 tickets_)
        ->start();
  }

  Failure chat(const Json& body, const Writer& writer) {
    if (draining_) return draining();
    ChatRequest request;
    std::vector<Prepared> prompts;
    if (Failure f = parse_chat(body, &request)) return f;
    if (Failure f = check_model(request.generation.model)) return f;
    if (Failure f = frontend_.prepare(request, &prompts)) return f;
    generate(request.generation, true, std::move(prompts), writer);
    return std::nullopt;
  }

  Failure completion(const Json& body, const Writer& writer) {
    if (draining_) return draining();
    CompletionRequest request;
    std::vector<Prepared> prompts;
    if (Failure f = parse_completion(body, &request)) return f;
    if (Failure f = check_model(request.generation.model)) return f;
    if (Failure f = frontend_.prepare(request, &prompts)) return f;
    generate(request.generation, false, std::move(prompts), writer);
    return std::nullopt;
  }

  Failure tokenize(const Json& body, const Writer& writer) {
    if (!body.is_object()) return bad_value("", "The body must be a JSON object.");
    Fields fields(body);
    const auto prompt = fields.string("prompt");
    const bool special = fields.boolean("add_special_tokens").value_or(true);
    const bool strings = fields.boolean("return_token_strs").value_or(false);
    if (fields.failure()) return fields.failure();
    std::vector<TokenId> ids;
    if (prompt) {
      ids = frontend_.tokenizer().encode(*prompt, {.add_special_tokens = special});
    } else {
      ChatRequest request;
      if (!body.contains("messages")) {
        return bad_value("prompt", "'prompt' or 'messages' is missing.");
      }
      if (Failure f = parse_chat_prompt(body, &request)) return f;
      if (Failure f = frontend_.tokenize(request, &ids)) return f;
    }
    Json answer = {
        {"count", ids.size()}, {"max_model_len", frontend_.config().context_max}, {"tokens", ids}};
    if (strings) {
      Json& list = answer["token_strs"] = Json::array();
      for (const TokenId id : ids) list.push_back(frontend_.tokenizer().token_bytes(id));
    }
    writer->send(json_response(dump_json(answer)));
    return std::nullopt;
  }

  Failure detokenize(const Json& body, const Writer& writer) {
    if (!body.is_object()) return bad_value("", "The body must be a JSON object.");
    std::vector<TokenId> ids;
    const auto list = body.find("tokens");
    bool ok = list != body.end() && list->is_array();
    for (size_t i = 0; ok && i < list->size(); ++i) {
      const Json& item = (*list)[i];
      ok = item.is_number_unsigned() &&
           item.get<uint64_t>() < static_cast<uint64_t>(frontend_.config().vocab);
      if (ok) ids.push_back(item.get<TokenId>());
    }
    if (!ok) {
      return bad_value("tokens", fmt::format("'tokens' must be an array of token ids below {}.",
                                             frontend_.config().vocab));
    }
    writer->send(json_response(dump_json({{"prompt", frontend_.tokenizer().decode(ids, false)}})));
    return std::nullopt;
  }

  const ServerConfig config_;
  Engine* const engine_;
  const Frontend& frontend_;
  Router router_;
  const int64_t started_;
  std::atomic<bool> draining_{false};
  std::shared_ptr<int> tickets_ = std::make_shared<int>(0);  // one owner per answer in work
  std::unique_ptr<HttpServer> http_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerConfig& config, Engine* engine,
                                              const Frontend& frontend) {
  auto server = std::make_unique<OpenAiServer>(config, engine, frontend);
  EXODE_TRY(server->listen());
  return std::unique_ptr<Server>(std::move(server));
}

Status run_server(const ServerConfig& config, Engine* engine, const Frontend& frontend,
                  const std::function<void(uint16_t port)>& listening) {
  std::unique_ptr<Server> server;
  {
    TerminationSignal termination;  // before the port is announced: a signal may come at once
    EXODE_ASSIGN(server, Server::start(config, engine, frontend));
    listening(server->port());
    termination.wait();
  }
  log_info("http", "shutting down");
  server->stop();
  return Done{};
}

}  // namespace exode::server
