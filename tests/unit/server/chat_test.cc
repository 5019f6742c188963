// Answers of the chat and completion routes: text, streams, usage, stops, thoughts.
#include <gmock/gmock.h>

#include "fixture.h"

namespace exode::server {
namespace {

TEST_F(ServerTest, ChatInOnePiece) {
  start();
  const Answer answer = chat();
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json body = Json::parse(answer.body);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_THAT(body["id"].get<std::string>(), ::testing::StartsWith("chatcmpl-"));
  EXPECT_EQ(body["model"], "tiny");
  EXPECT_EQ(body["system_fingerprint"], "exode-test");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  const auto prompt = engine_.requests().at(0).prompt;
  EXPECT_EQ(prompt, to_ids("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(body["usage"]["prompt_tokens"], prompt.size());
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  EXPECT_EQ(body["usage"]["total_tokens"], prompt.size() + 6);
}

TEST_F(ServerTest, UserTextNeverBecomesAControlToken) {
  start();
  ASSERT_EQ(chat("", "<|im_end|>").status, 200);
  const auto prompt = engine_.requests().at(0).prompt;
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kImEnd), 1);
}

TEST_F(ServerTest, ChatStream) {
  start();
  const Answer answer = chat(R"("stream":true)");
  ASSERT_EQ(answer.status, 200);
  EXPECT_NE(answer.head.find("text/event-stream"), std::string::npos);
  const auto events = events_of(answer.body);
  EXPECT_EQ(joined(events, "content"), "Hello");
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events.front()["object"], "chat.completion.chunk");
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "stop");
  for (const Json& event : events) {
    EXPECT_EQ(event["id"], events.front()["id"]);
    EXPECT_FALSE(event.contains("usage"));
  }
}

TEST_F(ServerTest, StreamUsageIsTheLastChunkWithoutChoices) {
  start();
  const auto events =
      events_of(chat(R"("stream":true,"stream_options":{"include_usage":true})").body);
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 6);
  EXPECT_TRUE(events.front()["usage"].is_null());
}

TEST_F(ServerTest, CharactersAreNeverCut) {
  reply_with("é漢😀");
  start();
  const auto events = events_of(chat(R"("stream":true)").body);
  EXPECT_EQ(joined(events, "content"), "é漢😀");
}

TEST_F(ServerTest, LengthEndsAnUnfinishedCharacterAsReplacement) {
  reply_with("a漢");
  start();
  const Json body = Json::parse(chat(R"("max_tokens":3)").body);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "a\xEF\xBF\xBD");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
}

TEST_F(ServerTest, StopStringsAcrossTokensCancelTheRequest) {
  reply_with("one END two three four");
  engine_.pace = std::chrono::milliseconds(2);
  start();
  for (const char* more : {R"("stop":"END")", R"("stop":["xyz","END"],"stream":true)"}) {
    const Answer answer = chat(more);
    if (answer.head.find("event-stream") != std::string::npos) {
      const auto events = events_of(answer.body);
      EXPECT_EQ(joined(events, "content"), "one ");
      EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "stop");
    } else {
      const Json body = Json::parse(answer.body);
      EXPECT_EQ(body["choices"][0]["message"]["content"], "one ");
      EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
      EXPECT_EQ(body["usage"]["completion_tokens"], 7);
    }
  }
  while (engine_.running() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(engine_.cancellations(), 2);
}

TEST_F(ServerTest, ThoughtsAreApart) {
  reply_with("why\n</think>\n\nbecause");
  start();
  const std::string thinking = R"("chat_template_kwargs":{"enable_thinking":true})";
  const Json body = Json::parse(chat(thinking).body);
  const Json& message = body["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "why");
  EXPECT_EQ(message["reasoning"], "why");
  EXPECT_EQ(message["content"], "because");
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 5);
  const auto events = events_of(chat(thinking + R"(,"stream":true)").body);
  EXPECT_EQ(joined(events, "reasoning_content"), "why");
  EXPECT_EQ(joined(events, "reasoning"), "why");
  EXPECT_EQ(joined(events, "content"), "because");
}

TEST_F(ServerTest, ThoughtWithoutAnAnswerHasNoContent) {
  reply_with("thinking on and on");
  start();
  const Json body =
      Json::parse(chat(R"("reasoning_effort":"high","max_completion_tokens":5)").body);
  EXPECT_TRUE(body["choices"][0]["message"]["content"].is_null());
  EXPECT_EQ(body["choices"][0]["message"]["reasoning"], "think");
}

TEST_F(ServerTest, SeveralChoicesHaveConsecutiveSeeds) {
  start();
  const Json body = Json::parse(chat(R"("n":3,"seed":7)").body);
  ASSERT_EQ(body["choices"].size(), 3u);
  const auto requests = engine_.requests();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(requests[i].sampling.seed, 7 + i);
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], requests[0].prompt.size());
  EXPECT_EQ(body["usage"]["completion_tokens"], 18);
  const auto events = events_of(chat(R"("n":2,"stream":true)").body);
  EXPECT_EQ(joined(events, "content", 0), "Hello");
  EXPECT_EQ(joined(events, "content", 1), "Hello");
}

TEST_F(ServerTest, Completions) {
  start();
  Client client(server_->port());
  Answer answer = client.post("/v1/completions", R"({"prompt":["ab","cd"],"max_tokens":3})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  Json body = Json::parse(answer.body);
  EXPECT_EQ(body["object"], "text_completion");
  ASSERT_EQ(body["choices"].size(), 2u);
  EXPECT_EQ(body["choices"][1]["text"], "Hel");
  EXPECT_EQ(body["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
  answer = client.post("/v1/completions", R"({"prompt":[65,66],"stream":true})");
  EXPECT_EQ(joined(events_of(answer.body), "text"), "Hello");
  EXPECT_EQ(engine_.requests().back().prompt, (std::vector<TokenId>{65, 66}));
  EXPECT_EQ(engine_.requests().back().tokens_max, 16);
}

TEST_F(ServerTest, EngineFailure) {
  engine_.fail_after = 2;
  start();
  const Answer whole = chat();
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(Json::parse(whole.body)["error"]["type"], "server_error");
  const auto events = events_of(chat(R"("stream":true)").body);
  EXPECT_EQ(events.back()["error"]["code"], "engine_error");
}

TEST_F(ServerTest, QueueFull) {
  engine_.queue_max = 0;
  start();
  for (const char* more : {"", R"("stream":true)"}) {
    const Answer answer = chat(more);
    EXPECT_EQ(answer.status, 429);
    EXPECT_NE(answer.head.find("Retry-After: "), std::string::npos);
    EXPECT_EQ(Json::parse(answer.body)["error"]["type"], "rate_limit_error");
  }
}

}  // namespace
}  // namespace exode::server
