// HTTP/1.1 without the library behind it: only http_beast.cc includes Boost.Beast.
//
// A handler runs on a worker thread and may answer at once (send) or later and in pieces
// (start_stream, write, end). post() runs a function on the connection's executor, where functions
// of one connection never overlap: engine sinks use it to leave the engine thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace exode::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method, path, query;  // "POST", "/v1/models", "a=b"
  Headers headers;
  std::string body;

  std::string_view header(std::string_view name) const;  // case-insensitive; empty if absent
};

struct HttpResponse {
  int status = 200;
  Headers headers = {};  // without Content-Length, Connection, Transfer-Encoding
  std::string body = {};
};

class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  // All are thread-safe. One send(), or start_stream(), write()…, end().
  virtual void send(HttpResponse response) = 0;
  // `keep_alive` is written whenever nothing else was for HttpLimits::ping; empty = never.
  virtual void start_stream(HttpResponse head, std::string keep_alive) = 0;
  // False when the peer is gone or reads too slowly to keep up; the caller stops its work then.
  virtual bool write(std::string_view bytes) = 0;
  virtual void end() = 0;
  virtual void abort() = 0;  // drops the connection
  virtual bool closed() const = 0;
  // Runs once on the executor if the connection goes before the response was complete. At once, on
  // this thread, when it is gone already.
  virtual void on_close(std::function<void()> callback) = 0;
  virtual void post(std::function<void()> function) = 0;
};

using Writer = std::shared_ptr<ResponseWriter>;
using HttpHandler = std::function<void(HttpRequest, Writer)>;
// Body of an answer that the HTTP layer gives by itself (413, 431, …).
using ErrorResponse = std::function<HttpResponse(int status, std::string message)>;

struct HttpLimits {
  size_t header_bytes = 32 << 10;
  size_t body_bytes = 32 << 20;
  size_t stream_bytes = 1 << 20;  // unsent bytes of one response before write() refuses
  int32_t connections = 1024;
  std::chrono::milliseconds header_timeout{10'000}, body_timeout{30'000}, write_timeout{60'000};
  std::chrono::milliseconds idle_timeout{75'000};  // between requests of one connection
  std::chrono::milliseconds ping{15'000};
};

struct HttpConfig {
  std::string host = "127.0.0.1";  // an address, v4 or v6
  uint16_t port = 8000;            // 0 = any free one
  int32_t io_threads = 1, worker_threads = 2;
  HttpLimits limits;
};

class HttpServer {
 public:
  static Result<std::unique_ptr<HttpServer>> listen(const HttpConfig& config, HttpHandler handler,
                                                    ErrorResponse error_response);
  virtual ~HttpServer() = default;  // close_all() and joins the threads

  virtual uint16_t port() const = 0;
  // Closes the listening socket and idle connections; running responses go on, and their
  // connections close after them.
  virtual void stop_accepting() = 0;
  virtual int32_t connections() const = 0;
  // True once no connection is left; waits up to `timeout`.
  virtual bool wait_idle(std::chrono::milliseconds timeout) = 0;
  virtual void close_all() = 0;
};

// Catches SIGINT and SIGTERM from its construction on; wait() returns after the first. Once it is
// destroyed signals end the process in the default way again.
class TerminationSignal {
 public:
  TerminationSignal();
  ~TerminationSignal();
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Exact paths, plus prefixes ending in '/' that match whatever follows.
class Router {
 public:
  using Failure = std::function<HttpResponse(int status, const HttpRequest& request)>;

  explicit Router(Failure failure) : failure_(std::move(failure)) {}
  void add(std::string method, std::string path, HttpHandler handler);
  // HEAD goes to the GET route (the HTTP layer drops the body), OPTIONS lists the methods; unknown
  // paths get 404 and known paths with another method 405 with Allow.
  void handle(HttpRequest request, const Writer& writer) const;

 private:
  struct Route {
    std::string method, path;
    HttpHandler handler;
  };
  static bool matches(const Route& route, std::string_view path);

  Failure failure_;
  std::vector<Route> routes_;
};

}  // namespace exode::server
