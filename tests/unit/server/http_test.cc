// The HTTP side over real sockets: limits, framing, disconnects, slow readers, shutdown.
#include <atomic>

#include "fixture.h"

namespace exode::server {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

bool eventually(const std::function<bool()>& condition, milliseconds limit = milliseconds(5000)) {
  const auto end = Clock::now() + limit;
  while (Clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return condition();
}

std::string code_of(const Answer& answer) {
  return Json::parse(answer.body)["error"]["code"].get<std::string>();
}

TEST_F(ServerTest, PlainRoutes) {
  start();
  Client client(server_->port());
  EXPECT_EQ(client.request("GET", "/health").status, 200);
  EXPECT_EQ(Json::parse(client.request("GET", "/version").body)["version"], "test");
  const Json models = Json::parse(client.request("GET", "/v1/models").body);
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], 512);
  EXPECT_EQ(Json::parse(client.request("GET", "/v1/models/tiny").body)["object"], "model");
  EXPECT_EQ(code_of(client.request("GET", "/v1/models/other")), "model_not_found");
  EXPECT_EQ(client.request("GET", "/nowhere").status, 404);
  const Answer head = client.request("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  const Answer wrong = client.request("GET", "/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.head.find("Allow: POST"), std::string::npos);
  EXPECT_EQ(client.request("OPTIONS", "/v1/models").status, 204);
  EXPECT_EQ(client.request("GET", "/health?x=1").status, 200);
}

TEST_F(ServerTest, BodyLimit) {
  config_.http.limits.body_bytes = 1000;
  start();
  const std::string fits(1000, ' ');
  Client first(server_->port());
  EXPECT_EQ(first.post("/v1/completions", fits).status, 400);
  Client second(server_->port());
  const Answer answer = second.post("/v1/completions", fits + " ");
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(code_of(answer), "request_too_large");
  Client chunked(server_->port());
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) chunked.send("64\r\n" + std::string(100, ' ') + "\r\n");
  EXPECT_EQ(chunked.receive().status, 413);
}

TEST_F(ServerTest, HeaderLimit) {
  start();
  Client client(server_->port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(40'000, 'a') +
              "\r\n\r\n");
  EXPECT_EQ(client.receive().status, 431);
}

TEST_F(ServerTest, ContradictoryFramingIsRefused) {
  start();
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n";
  for (const char* framing :
       {"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "Content-Length: -1\r\n\r\n"}) {
    Client client(server_->port());
    client.send(post + framing);
    EXPECT_EQ(client.receive().status, 400) << framing;
    EXPECT_TRUE(client.wait_for_end()) << framing;
  }
}

TEST_F(ServerTest, GarbageIsRefused) {
  start();
  for (const char* bytes : {"hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n",
                            "GET /health HTTP/1.1\r\nBad Header: 1\r\n\r\n"}) {
    Client client(server_->port());
    client.send(bytes);
    EXPECT_EQ(client.receive().status, 400) << bytes;
  }
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrder) {
  engine_.pace = milliseconds(1);
  start();
  Client client(server_->port());
  const std::string one = Client::post_text("/v1/completions", R"({"prompt":"a"})");
  client.send(one + "GET /version HTTP/1.1\r\nHost: x\r\n\r\n" + one);
  EXPECT_EQ(Json::parse(client.receive().body)["object"], "text_completion");
  EXPECT_EQ(Json::parse(client.receive().body)["version"], "test");
  EXPECT_EQ(Json::parse(client.receive().body)["object"], "text_completion");
  EXPECT_EQ(engine_.cancellations(), 0);
}

TEST_F(ServerTest, ChunkedRequestAndContinue) {
  start();
  Client client(server_->port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
      "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(client.receive(true).status, 100);
  client.send("5\r\n{\"pro\r\n");
  client.send("a\r\nmpt\":\"ab\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.receive().status, 200);
}

TEST_F(ServerTest, OldClientsGetAStreamWithoutChunks) {
  start();
  Client client(server_->port());
  const std::string body = chat_body(R"("stream":true)");
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_TRUE(client.wait_for("data: [DONE]\n\n"));
  EXPECT_TRUE(client.wait_for_end());
}

TEST_F(ServerTest, DisconnectCancels) {
  engine_.pace = milliseconds(2);
  reply_with(std::string(400, 'x'));
  start();
  for (const char* more : {"", R"("stream":true)", R"("n":2)"}) {
    const int32_t before = engine_.cancellations();
    const int32_t count = std::string(more) == R"("n":2)" ? 2 : 1;
    {
      Client client(server_->port());
      client.send(Client::post_text("/v1/chat/completions", chat_body(more)));
      EXPECT_TRUE(eventually([&] { return engine_.running() == count; })) << more;
    }
    EXPECT_TRUE(
        eventually([&] { return engine_.cancellations() == before + count; }, milliseconds(500)))
        << more;
    EXPECT_EQ(engine_.running(), 0);
  }
}

TEST_F(ServerTest, SlowReaderIsCutOffAndOthersGoOn) {
  config_.http.limits.stream_bytes = 64 << 10;
  frontend_config_.context_max = 4'000'000;
  engine_.reply = [](const Request& request) {
    const bool endless = request.prompt.front() == 'z';
    return endless ? to_ids("x") : to_ids("Hello<|im_end|>");
  };
  start();
  Client slow(server_->port(), 4096);
  slow.send(
      Client::post_text("/v1/completions", R"({"prompt":"z","stream":true,"max_tokens":3000000})"));
  EXPECT_TRUE(slow.wait_for("data: "));
  Client other(server_->port());
  EXPECT_EQ(other.post("/v1/completions", R"({"prompt":"a"})").status, 200);
  EXPECT_TRUE(eventually([&] { return engine_.cancellations() == 1; }, milliseconds(15'000)));
  EXPECT_TRUE(slow.wait_for_end());
}

TEST_F(ServerTest, ParallelStreams) {
  engine_.pace = milliseconds(1);
  start();
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&] {
      const Answer answer = chat(R"("stream":true)");
      if (answer.status == 200 && joined(events_of(answer.body), "content") == "Hello") ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 32);
}

TEST_F(ServerTest, SilentClientsTimeOut) {
  config_.http.limits.header_timeout = milliseconds(100);
  config_.http.limits.body_timeout = milliseconds(100);
  start();
  Client silent(server_->port()), half(server_->port()), no_body(server_->port());
  half.send("GET /heal");
  no_body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_TRUE(silent.wait_for_end());
  EXPECT_TRUE(half.wait_for_end());
  EXPECT_TRUE(no_body.wait_for_end());
}

TEST_F(ServerTest, ConnectionLimit) {
  config_.http.limits.connections = 2;
  start();
  Client first(server_->port()), second(server_->port());
  EXPECT_EQ(first.request("GET", "/health").status, 200);
  EXPECT_EQ(second.request("GET", "/health").status, 200);
  Client third(server_->port());
  EXPECT_EQ(third.receive().status, 503);
  second.close();
  EXPECT_TRUE(eventually([&] {
    Client again(server_->port());
    return again.request("GET", "/health").status == 200;
  }));
}

TEST_F(ServerTest, PingsWhileNothingIsSent) {
  config_.http.limits.ping = milliseconds(20);
  engine_.pace = milliseconds(150);
  start();
  const Answer answer = chat(R"("stream":true,"max_tokens":2)");
  EXPECT_NE(answer.body.find(": ping\n\n"), std::string::npos);
  EXPECT_EQ(joined(events_of(answer.body), "content"), "He");
}

TEST_F(ServerTest, ShutdownFinishesWhatRuns) {
  engine_.pace = milliseconds(20);
  config_.drain_timeout = milliseconds(5000);
  start();
  Client running(server_->port()), waiting(server_->port());
  running.send(Client::post_text("/v1/chat/completions", chat_body(R"("stream":true)")));
  EXPECT_TRUE(running.wait_for("data: "));
  EXPECT_EQ(waiting.request("GET", "/health").status, 200);
  server_->begin_drain();
  EXPECT_EQ(waiting.request("GET", "/health").status, 503);
  const Answer refused = waiting.post("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(code_of(refused), "draining");
  server_->stop();
  EXPECT_EQ(joined(events_of(running.receive().body), "content"), "Hello");
  EXPECT_TRUE(waiting.wait_for_end());
  EXPECT_FALSE(Client(server_->port()).connected());
  EXPECT_EQ(engine_.cancellations(), 0);
}

TEST_F(ServerTest, ShutdownCancelsAfterTheDeadline) {
  engine_.pace = milliseconds(20);
  reply_with(std::string(400, 'x'));
  config_.drain_timeout = milliseconds(50);
  start();
  Client client(server_->port());
  client.send(Client::post_text("/v1/chat/completions", chat_body(R"("stream":true)")));
  EXPECT_TRUE(client.wait_for("data: "));
  const auto begin = Clock::now();
  server_->stop();
  EXPECT_LT(Clock::now() - begin, milliseconds(1500));
  EXPECT_TRUE(eventually([&] { return engine_.cancellations() == 1; }));
  EXPECT_TRUE(client.wait_for_end());
}

TEST_F(ServerTest, ServerMayGoBeforeTheEngine) {
  engine_.pace = milliseconds(5);
  reply_with(std::string(400, 'x'));
  config_.drain_timeout = milliseconds(10);
  start();
  Client client(server_->port());
  client.send(Client::post_text("/v1/chat/completions", chat_body(R"("stream":true)")));
  EXPECT_TRUE(client.wait_for("data: "));
  server_->stop();
  server_.reset();
  EXPECT_TRUE(eventually([&] { return engine_.running() == 0; }));
}

TEST_F(ServerTest, PortInUseIsAnError) {
  start();
  ServerConfig again = config_;
  again.http.port = server_->port();
  const auto second = Server::start(again, &engine_, *frontend_);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find(std::to_string(again.http.port)), std::string::npos);
}

}  // namespace
}  // namespace exode::server
