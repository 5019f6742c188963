// The only file that includes Boost.Beast. Coroutines take parameters by value and never await
// inside conditions or argument lists: GCC 12 miscompiles temporaries there.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <utility>  // Asio 1.81 uses std::exchange without it

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "base/log.h"
#include "server/http.h"

namespace exode::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Milliseconds = std::chrono::milliseconds;

// Bytes of following requests kept while a response runs; a client that pipelines more loses the
// watch for its disconnect until the response is written.
constexpr size_t kPipelineBytes = 64 << 10;
// What is read and dropped after an early refusal, so that the client gets to see the answer
// instead of a reset.
constexpr size_t kDrainBytes = 64 << 20;
constexpr Milliseconds kDrainTime{2000};

std::string status_line(int status) {
  const auto known = http::int_to_status(static_cast<unsigned>(status));
  std::string line = "HTTP/1.1 " + std::to_string(status) + ' ';
  line += std::string(http::obsolete_reason(known));
  return line + "\r\n";
}

std::string head_text(const HttpResponse& response, std::string_view framing, bool keep_alive) {
  std::string text = status_line(response.status);
  for (const auto& [name, value] : response.headers) text += name + ": " + value + "\r\n";
  text += framing;
  text += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return text;
}

std::string whole_text(const HttpResponse& response, bool head_only, bool keep_alive) {
  std::string framing;
  if (response.status != 204) {
    framing = "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  }
  std::string text = head_text(response, framing, keep_alive);
  if (!head_only && response.status != 204) text += response.body;
  return text;
}

std::string chunk_text(std::string_view bytes) {
  char size[20];
  const int n = std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  std::string text(size, static_cast<size_t>(n));
  text += bytes;
  return text += "\r\n";
}

struct Shared;
class Exchange;

// One socket. Everything without a comment about locks is touched on its strand only.
struct Connection {
  Connection(tcp::socket socket, std::shared_ptr<Shared> owner)
      : shared(std::move(owner)),
        stream(std::move(socket)),
        wake(stream.get_executor()),
        watch_done(stream.get_executor()) {}

  // First, so that it goes last: an engine may hold a response longer than the server lives.
  const std::shared_ptr<Shared> shared;
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  asio::steady_timer wake;        // cancelled when the exchange has something to write
  asio::steady_timer watch_done;  // cancelled when the watch of the peer has ended
  bool watching = false;
  // cancel() does not reach a read that has completed but whose coroutine has not resumed.
  bool watch_wanted = false;
  std::weak_ptr<Exchange> current;  // the response under way
  bool idle = true;                 // between requests
};
using ConnectionPtr = std::shared_ptr<Connection>;

struct Shared {
  HttpConfig config;
  HttpHandler handler;
  ErrorResponse error_response;
  asio::io_context io;
  std::unique_ptr<asio::thread_pool> workers;
  std::atomic<bool> draining{false};
  std::mutex mutex;  // guards connections
  std::condition_variable changed;
  std::set<ConnectionPtr> connections;
};

class Exchange final : public ResponseWriter, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(ConnectionPtr connection, bool head_only, bool keep_alive, bool chunked)
      : connection_(std::move(connection)),
        head_only_(head_only),
        keep_alive_(keep_alive),
        chunked_(chunked) {}
  ~Exchange() override = default;

  void send(HttpResponse response) override {
    const std::lock_guard lock(mutex_);
    if (started_ || closed_) return;
    started_ = ended_ = true;
    if (connection_->shared->draining) keep_alive_ = false;
    output_ += whole_text(response, head_only_, keep_alive_);
    notify();
  }

  void start_stream(HttpResponse head, std::string keep_alive) override {
    const std::lock_guard lock(mutex_);
    if (started_ || closed_) return;
    started_ = true;
    if (!chunked_ || connection_->shared->draining) keep_alive_ = false;
    ping_ = std::move(keep_alive);
    output_ += head_text(head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "", keep_alive_);
    notify();
  }

  bool write(std::string_view bytes) override {
    const std::lock_guard lock(mutex_);
    if (closed_ || ended_) return false;
    if (bytes.empty() || head_only_) return true;
    if (output_.size() + bytes.size() > connection_->shared->config.limits.stream_bytes) {
      return false;
    }
    append(bytes);
    notify();
    return true;
  }

  void end() override {
    const std::lock_guard lock(mutex_);
    if (closed_ || ended_) return;
    ended_ = true;
    if (chunked_ && !head_only_) output_ += "0\r\n\r\n";
    notify();
  }

  void abort() override {
    if (closed()) return;
    asio::post(connection_->stream.get_executor(), [self = shared_from_this()] {
      error_code ignored;
      self->connection_->stream.socket().close(ignored);
      self->lose();
    });
  }

  bool closed() const override {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  void on_close(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (!closed_) {
        on_close_ = std::move(callback);
        return;
      }
    }
    callback();  // post() refuses by now, so nothing else runs for this response
  }

  void post(std::function<void()> function) override {
    const std::lock_guard lock(mutex_);
    if (closed_ || finished_) return;  // nothing would run it once the server has stopped
    asio::post(connection_->stream.get_executor(), std::move(function));
  }

  // On the strand: the peer is gone. A peer that only stopped sending still gets a finished answer.
  void lose(bool stopped_sending = false) {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || finished_ || (stopped_sending && ended_)) return;
      closed_ = true;
      callback = std::move(on_close_);
      connection_->wake.cancel();
    }
    if (callback) callback();
  }

  struct Taken {
    std::string bytes;
    bool ended = false, closed = false, streaming = false;
  };
  Taken take() {
    const std::lock_guard lock(mutex_);
    Taken taken{std::move(output_), ended_, closed_, started_ && !ended_ && !ping_.empty()};
    output_.clear();
    return taken;
  }
  void add_ping() {
    const std::lock_guard lock(mutex_);
    if (!ended_ && output_.empty() && !head_only_) append(ping_);
  }
  // The response is written: callbacks are dropped so that what they hold is freed.
  bool finish() {
    std::function<void()> dropped;
    const std::lock_guard lock(mutex_);
    finished_ = true;
    dropped = std::move(on_close_);
    on_close_ = nullptr;
    return keep_alive_ && !closed_;
  }
  void refuse_keep_alive() { keep_alive_ = false; }

 private:
  void append(std::string_view bytes) {
    if (chunked_) {
      output_ += chunk_text(bytes);
    } else {
      output_ += bytes;
    }
  }
  void notify() {
    asio::post(connection_->stream.get_executor(),
               [connection = connection_] { connection->wake.cancel(); });
  }

  const ConnectionPtr connection_;
  const bool head_only_;
  mutable std::mutex mutex_;  // guards all below
  bool keep_alive_;
  const bool chunked_;
  std::string output_, ping_;
  bool started_ = false, ended_ = false, closed_ = false, finished_ = false;
  std::function<void()> on_close_;
};
using ExchangePtr = std::shared_ptr<Exchange>;

// Reads ahead while a response is under way: the only way to notice that the peer has left.
asio::awaitable<void> watch_peer(ConnectionPtr connection, ExchangePtr exchange) {
  error_code ec;
  while (!ec && connection->watch_wanted && connection->buffer.size() < kPipelineBytes) {
    const auto space = connection->buffer.prepare(4096);
    connection->stream.expires_never();
    const size_t n = co_await connection->stream.async_read_some(
        space, asio::redirect_error(asio::use_awaitable, ec));
    connection->buffer.commit(n);
  }
  if (ec) exchange->lose(ec == asio::error::eof);
  connection->watching = false;
  connection->watch_done.cancel();
}

// Writes what the exchange produces until it ends; false if the connection broke.
asio::awaitable<bool> write_response(ConnectionPtr connection, ExchangePtr exchange) {
  const HttpLimits& limits = connection->shared->config.limits;
  for (;;) {
    Exchange::Taken taken = exchange->take();
    if (taken.closed) co_return false;
    if (!taken.bytes.empty()) {
      connection->stream.expires_after(limits.write_timeout);
      error_code ec;
      co_await asio::async_write(connection->stream, asio::buffer(taken.bytes),
                                 asio::redirect_error(asio::use_awaitable, ec));
      if (ec) {
        exchange->lose();
        co_return false;
      }
      if (taken.ended) co_return true;
      continue;
    }
    if (taken.ended) co_return true;
    if (taken.streaming) {
      connection->wake.expires_after(limits.ping);
    } else {
      connection->wake.expires_at(asio::steady_timer::time_point::max());
    }
    error_code ec;
    co_await connection->wake.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    if (!ec) exchange->add_ping();
  }
}

asio::awaitable<void> stop_watch(ConnectionPtr connection) {
  if (!connection->watching) co_return;
  connection->watch_wanted = false;
  connection->stream.cancel();
  while (connection->watching) {
    connection->watch_done.expires_at(asio::steady_timer::time_point::max());
    error_code ec;
    co_await connection->watch_done.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

// Answers by itself and closes: the rest of the input cannot be trusted to be a request.
asio::awaitable<void> refuse(ConnectionPtr connection, int status, std::string message) {
  const HttpResponse response = connection->shared->error_response(status, std::move(message));
  const std::string text = whole_text(response, false, false);
  connection->stream.expires_after(connection->shared->config.limits.write_timeout);
  error_code ec;
  co_await asio::async_write(connection->stream, asio::buffer(text),
                             asio::redirect_error(asio::use_awaitable, ec));
  if (ec) co_return;
  connection->stream.socket().shutdown(tcp::socket::shutdown_send, ec);
  std::string sink(64 << 10, '\0');
  connection->stream.expires_after(kDrainTime);
  for (size_t total = 0; !ec && total < kDrainBytes;) {
    const size_t n = co_await connection->stream.async_read_some(
        asio::buffer(sink), asio::redirect_error(asio::use_awaitable, ec));
    total += n;
  }
}

int status_of(const error_code& ec, bool in_body) {
  if (ec == http::error::header_limit || ec == http::error::buffer_overflow) return 431;
  if (ec == http::error::body_limit) return 413;
  if (ec == beast::error::timeout) return in_body ? 408 : 0;
  if (ec.category() == http::make_error_code(http::error::bad_method).category() &&
      ec != http::error::end_of_stream && ec != http::error::partial_message) {
    return 400;
  }
  return 0;  // gone: nobody to answer
}

std::string message_of(int status, const HttpLimits& limits) {
  if (status == 431) {
    return "Request headers are larger than " + std::to_string(limits.header_bytes) + " bytes.";
  }
  if (status == 413) {
    return "Request body is larger than the limit of " + std::to_string(limits.body_bytes) +
           " bytes.";
  }
  if (status == 408) return "The request did not arrive in time.";
  return "The request is not valid HTTP/1.1.";
}

using Parser = http::request_parser<http::string_body>;

HttpRequest request_of(Parser::value_type message) {
  HttpRequest request;
  request.method = std::string(message.method_string().data(), message.method_string().size());
  const std::string target(message.target());
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string::npos) request.query = target.substr(mark + 1);
  for (const auto& field : message) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  request.body = std::move(message.body());
  return request;
}

// Reads one request into `parser`; false when the connection is to be closed.
asio::awaitable<bool> read_request(ConnectionPtr connection, std::shared_ptr<Parser> parser,
                                   bool first) {
  const HttpLimits& limits = connection->shared->config.limits;
  error_code ec;
  if (connection->buffer.size() == 0) {
    // Waiting for the next request is not slowness: its header time starts with its first byte.
    connection->stream.expires_after(first ? limits.header_timeout : limits.idle_timeout);
    const auto space = connection->buffer.prepare(4096);
    const size_t n = co_await connection->stream.async_read_some(
        space, asio::redirect_error(asio::use_awaitable, ec));
    connection->buffer.commit(n);
    if (ec) co_return false;
  }
  connection->idle = false;
  connection->stream.expires_after(limits.header_timeout);
  co_await http::async_read_header(connection->stream, connection->buffer, *parser,
                                   asio::redirect_error(asio::use_awaitable, ec));
  const auto& fields = parser->get();
  if (!ec && fields.count(http::field::transfer_encoding) > 0 &&
      fields.count(http::field::content_length) > 0) {
    ec = http::error::bad_transfer_encoding;
  }
  if (!ec && beast::iequals(fields[http::field::expect], "100-continue")) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    co_await asio::async_write(connection->stream, asio::buffer(kContinue),
                               asio::redirect_error(asio::use_awaitable, ec));
  }
  bool in_body = false;
  if (!ec) {
    in_body = true;
    connection->stream.expires_after(limits.body_timeout);
    co_await http::async_read(connection->stream, connection->buffer, *parser,
                              asio::redirect_error(asio::use_awaitable, ec));
  }
  if (!ec) co_return true;
  const int status = status_of(ec, in_body);
  if (status != 0 && connection->stream.socket().is_open()) {
    co_await refuse(connection, status, message_of(status, limits));
  }
  co_return false;
}

asio::awaitable<bool> exchange_once(ConnectionPtr connection, bool first) {
  const std::shared_ptr<Shared> shared = connection->shared;
  auto parser = std::make_shared<Parser>();
  parser->header_limit(static_cast<uint32_t>(shared->config.limits.header_bytes));
  parser->body_limit(shared->config.limits.body_bytes);
  const bool got = co_await read_request(connection, parser, first);
  if (!got) co_return false;

  Parser::value_type message = parser->release();
  const bool keep_alive = message.keep_alive() && !shared->draining;
  auto exchange = std::make_shared<Exchange>(connection, message.method() == http::verb::head,
                                             keep_alive, message.version() >= 11);
  connection->current = exchange;
  connection->watching = connection->watch_wanted = true;
  asio::co_spawn(connection->stream.get_executor(), watch_peer(connection, exchange),
                 asio::detached);
  HttpRequest request = request_of(std::move(message));
  const HttpHandler* handler = &shared->handler;
  asio::post(*shared->workers, [exchange, request = std::move(request), handler]() mutable {
    (*handler)(std::move(request), exchange);
  });
  const bool written = co_await write_response(connection, exchange);
  const bool more = exchange->finish() && written;
  co_await stop_watch(connection);
  connection->idle = true;
  co_return more && !shared->draining;
}

void forget(const ConnectionPtr& connection) {
  const std::shared_ptr<Shared> shared = connection->shared;
  const std::lock_guard lock(shared->mutex);
  shared->connections.erase(connection);
  shared->changed.notify_all();
}

asio::awaitable<void> serve(ConnectionPtr connection) {
  try {
    for (bool first = true, more = true; more; first = false) {
      more = co_await exchange_once(connection, first);
    }
  } catch (const std::exception& e) {
    log_error("http", std::string("connection dropped: ") + e.what());
  }
  error_code ignored;
  connection->stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
  connection->stream.socket().close(ignored);
  forget(connection);
}

asio::awaitable<void> turn_away(ConnectionPtr connection) {
  co_await refuse(connection, 503, "Too many connections.");
  error_code ignored;
  connection->stream.socket().close(ignored);
}

asio::awaitable<void> accept_loop(std::shared_ptr<tcp::acceptor> acceptor,
                                  std::shared_ptr<Shared> shared) {
  while (acceptor->is_open()) {
    error_code ec;
    tcp::socket socket = co_await acceptor->async_accept(
        asio::make_strand(shared->io), asio::redirect_error(asio::use_awaitable, ec));
    if (ec == asio::error::operation_aborted || ec == asio::error::bad_descriptor) co_return;
    if (ec) {
      // Out of descriptors, most likely: let some connections finish.
      log_warn("http", "accept: " + ec.message());
      asio::steady_timer pause(shared->io, Milliseconds(100));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
      continue;
    }
    socket.set_option(tcp::no_delay(true), ec);
    auto connection = std::make_shared<Connection>(std::move(socket), shared);
    bool full = false;
    {
      const std::lock_guard lock(shared->mutex);
      const auto open = static_cast<int32_t>(shared->connections.size());
      full = open >= shared->config.limits.connections;
      if (!full) shared->connections.insert(connection);
    }
    const auto executor = connection->stream.get_executor();
    if (full) {
      asio::co_spawn(executor, turn_away(connection), asio::detached);
    } else {
      asio::co_spawn(executor, serve(connection), asio::detached);
    }
  }
}

class BeastServer final : public HttpServer {
 public:
  BeastServer(const HttpConfig& config, HttpHandler handler, ErrorResponse error_response) {
    shared_->config = config;
    shared_->handler = std::move(handler);
    shared_->error_response = std::move(error_response);
  }
  ~BeastServer() override {
    stop_accepting();
    close_all();
    // Without connections and acceptor the context runs out of work, so its threads end.
    if (!wait_idle(Milliseconds(2000))) shared_->io.stop();
    if (shared_->workers) shared_->workers->join();
    for (std::thread& thread : threads_) thread.join();
    // What was posted too late: such functions hold connections, which hold the context.
    shared_->io.restart();
    shared_->io.poll();
    const std::lock_guard lock(shared_->mutex);
    shared_->connections.clear();
  }

  Status open() {
    const std::string where = shared_->config.host + ":" + std::to_string(shared_->config.port);
    error_code ec;
    std::string host = shared_->config.host;
    if (host == "localhost") host = "127.0.0.1";
    const auto address = asio::ip::make_address(host, ec);
    if (ec) return invalid("--host " + shared_->config.host + " is not an IP address");
    const tcp::endpoint endpoint(address, shared_->config.port);
    acceptor_ = std::make_shared<tcp::acceptor>(asio::make_strand(shared_->io));
    acceptor_->open(endpoint.protocol(), ec);
    if (!ec) acceptor_->set_option(asio::socket_base::reuse_address(true), ec);
    if (!ec) acceptor_->bind(endpoint, ec);
    if (!ec) acceptor_->listen(asio::socket_base::max_listen_connections, ec);
    if (!ec) port_ = acceptor_->local_endpoint(ec).port();
    if (ec) return io_error("cannot listen on " + where + ": " + ec.message());
    const auto workers = static_cast<size_t>(std::max(1, shared_->config.worker_threads));
    shared_->workers = std::make_unique<asio::thread_pool>(workers);
    asio::co_spawn(acceptor_->get_executor(), accept_loop(acceptor_, shared_), asio::detached);
    for (int32_t i = 0; i < std::max(1, shared_->config.io_threads); ++i) {
      threads_.emplace_back([this] { shared_->io.run(); });
    }
    return Done{};
  }

  uint16_t port() const override { return port_; }

  void stop_accepting() override {
    shared_->draining = true;
    if (acceptor_) {
      asio::post(acceptor_->get_executor(), [acceptor = acceptor_] {
        error_code ignored;
        acceptor->close(ignored);
      });
    }
    for (const ConnectionPtr& connection : snapshot()) close(connection, true);
  }

  int32_t connections() const override {
    const std::lock_guard lock(shared_->mutex);
    return static_cast<int32_t>(shared_->connections.size());
  }

  bool wait_idle(Milliseconds timeout) override {
    std::unique_lock lock(shared_->mutex);
    return shared_->changed.wait_for(lock, timeout, [&] { return shared_->connections.empty(); });
  }

  void close_all() override {
    for (const ConnectionPtr& connection : snapshot()) close(connection, false);
  }

 private:
  std::vector<ConnectionPtr> snapshot() {
    const std::lock_guard lock(shared_->mutex);
    return {shared_->connections.begin(), shared_->connections.end()};
  }
  static void close(const ConnectionPtr& connection, bool only_idle) {
    asio::post(connection->stream.get_executor(), [connection, only_idle] {
      if (only_idle && !connection->idle) return;
      connection->stream.close();
      if (const ExchangePtr exchange = connection->current.lock()) exchange->lose();
    });
  }

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::shared_ptr<tcp::acceptor> acceptor_;
  std::vector<std::thread> threads_;
  uint16_t port_ = 0;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpConfig& config,
                                                       HttpHandler handler,
                                                       ErrorResponse error_response) {
  auto server =
      std::make_unique<BeastServer>(config, std::move(handler), std::move(error_response));
  EXODE_TRY(server->open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

struct TerminationSignal::State {
  asio::io_context io;
  asio::signal_set signals{io, SIGINT, SIGTERM};
};

TerminationSignal::TerminationSignal() : state_(std::make_unique<State>()) {}
TerminationSignal::~TerminationSignal() = default;

void TerminationSignal::wait() {
  state_->signals.async_wait([](const error_code&, int) {});
  state_->io.run();
}

}  // namespace exode::server
