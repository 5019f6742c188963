// Request bodies: what is refused and how, and what reaches the engine.
#include "fixture.h"

namespace exode::server {
namespace {

TEST_F(ServerTest, MalformedJson) {
  start();
  const std::string deep(200, '[');
  for (const std::string& body :
       {std::string(""), std::string("{"), std::string("{\"a\":}"), std::string("nope"), deep,
        std::string("{\"messages\":\"\xff\xfe\"}"), std::string("{\"seed\":1e999}")}) {
    Client client(server_->port());
    const Answer answer = client.post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400) << body;
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_EQ(error["code"], "invalid_json") << body;
    EXPECT_EQ(error["type"], "invalid_request_error");
  }
}

TEST_F(ServerTest, BadFieldsAreNamed) {
  start();
  struct Case {
    const char* more;
    const char* param;
  };
  const Case cases[] = {
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":-0.1)", "temperature"},
      {R"("top_p":0)", "top_p"},
      {R"("top_p":1.5)", "top_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("min_p":2)", "min_p"},
      {R"("presence_penalty":3)", "presence_penalty"},
      {R"("frequency_penalty":[])", "frequency_penalty"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":"5")", "max_tokens"},
      {R"("max_completion_tokens":-1)", "max_completion_tokens"},
      {R"("n":0)", "n"},
      {R"("n":9)", "n"},
      {R"("seed":18446744073709551615)", "seed"},
      {R"("stop":7)", "stop"},
      {R"("stop":["a",1])", "stop"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])", "stop"},
      {R"("stream":"yes")", "stream"},
      {R"("stream_options":1)", "stream_options"},
      {R"("stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"5":101})", "logit_bias"},
      {R"("logit_bias":{"100000":1})", "logit_bias"},
      {R"("stop_token_ids":[-1])", "stop_token_ids"},
      {R"("logprobs":true)", "logprobs"},
      {R"("top_logprobs":3)", "top_logprobs"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tools":[{"type":"x"}])", "tools[0]"},
      {R"("tools":{})", "tools"},
      {R"("chat_template":"x")", "chat_template"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("continue_final_message":true)", "continue_final_message"},
      {R"("model":5)", "model"},
      {R"("messages":[])", "messages"},
      {R"("messages":"hi")", "messages"},
      {R"("messages":[1])", "messages[0]"},
      {R"("messages":[{"role":"king","content":"x"}])", "messages[0].role"},
      {R"("messages":[{"role":"user"}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":5}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
       "messages[0].content[0]"},
  };
  for (const Case& c : cases) {
    const Answer answer = chat(c.more);
    EXPECT_EQ(answer.status, 400) << c.more << answer.body;
    EXPECT_EQ(Json::parse(answer.body)["error"]["param"], c.param) << c.more;
  }
  EXPECT_TRUE(engine_.requests().empty());
}

TEST_F(ServerTest, NullsAndUnknownFieldsAreFine) {
  start();
  EXPECT_EQ(chat(R"("temperature":null,"stop":null,"tools":null,"logprobs":null,"user":"me",)"
                 R"("metadata":{},"logprobs":false,"response_format":{"type":"text"},)"
                 R"("tool_choice":"auto","stream_options":null)")
                .status,
            200);
}

TEST_F(ServerTest, UnknownModel) {
  start();
  const Answer answer = chat(R"("model":"gpt-9")");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(Json::parse(answer.body)["error"]["code"], "model_not_found");
  EXPECT_EQ(chat(R"("model":"")").status, 200);
}

TEST_F(ServerTest, ContextLength) {
  start();
  using Texts = std::pair<std::string, std::string>;
  for (const auto& [more, content] :
       {Texts{"", std::string(600, 'x')}, Texts{R"("max_tokens":511)", "hi"}}) {
    const Answer answer = chat(more, content);
    EXPECT_EQ(answer.status, 400);
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["n_ctx"], 512);
    EXPECT_GT(error["n_prompt_tokens"], 0);
    const std::string text = error["message"];
    EXPECT_NE(text.find("maximum context length is 512 tokens"), std::string::npos);
  }
}

TEST_F(ServerTest, TemplateErrors) {
  start();
  const Answer answer = chat("", "raise");
  EXPECT_EQ(answer.status, 400);
  const Json error = Json::parse(answer.body)["error"];
  EXPECT_EQ(error["code"], "template_error");
  EXPECT_NE(error["message"].get<std::string>().find("no such luck"), std::string::npos);
}

TEST_F(ServerTest, SentFieldsBeatDefaults) {
  frontend_config_.defaults = {.temperature = 0.6F, .top_p = 0.95F, .top_k = 20};
  start();
  ASSERT_EQ(chat(R"("temperature":1.0,"top_k":-1,"max_tokens":4,"logit_bias":{"7":-3.5})").status,
            200);
  ASSERT_EQ(chat(R"("ignore_eos":true,"max_tokens":20,"stop_token_ids":[200])").status, 200);
  const auto requests = engine_.requests();
  EXPECT_FLOAT_EQ(requests[0].sampling.temperature, 1.0F);
  EXPECT_FLOAT_EQ(requests[0].sampling.top_p, 0.95F);
  EXPECT_EQ(requests[0].sampling.top_k, 0);
  EXPECT_EQ(requests[0].tokens_max, 4);
  EXPECT_EQ(requests[0].stop_tokens, std::vector<TokenId>{kImEnd});
  ASSERT_EQ(requests[0].sampling.logit_bias.size(), 1u);
  EXPECT_EQ(requests[0].sampling.logit_bias[0].token, 7);
  EXPECT_FLOAT_EQ(requests[0].sampling.logit_bias[0].bias, -3.5F);
  EXPECT_FLOAT_EQ(requests[1].sampling.temperature, 0.6F);
  EXPECT_EQ(requests[1].sampling.top_k, 20);
  EXPECT_EQ(requests[1].stop_tokens, std::vector<TokenId>{200});
  EXPECT_NE(requests[0].sampling.seed, requests[1].sampling.seed);
}

TEST_F(ServerTest, MessagesBecomeTemplateMessages) {
  Json out;
  const Json in = Json::parse(R"([
    {"role":"system","content":"a"}, {"role":"developer","content":[{"type":"text","text":"b"}]},
    {"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]},
    {"role":"assistant","content":null,"reasoning":"r","tool_calls":[{"id":"1","type":"function",
      "function":{"name":"f","arguments":"{\"z\":1,\"a\":1.0}"}}]},
    {"role":"tool","content":"t","tool_call_id":"1"}])");
  const Failure failure = normalise_messages(in, &out);
  ASSERT_FALSE(failure) << failure->message;
  EXPECT_EQ(out.dump(),
            R"([{"role":"system","content":"a\n\nb"},{"role":"user","content":"cd"},)"
            R"({"role":"assistant","content":"","reasoning_content":"r","tool_calls":[{"id":"1",)"
            R"("type":"function","function":{"name":"f","arguments":{"z":1,"a":1.0}}}]},)"
            R"({"role":"tool","content":"t","tool_call_id":"1"}])");
  Json bad = in;
  bad[3]["tool_calls"][0]["function"]["arguments"] = "{";
  EXPECT_EQ(normalise_messages(bad, &out)->param, "messages[3].tool_calls[0].function.arguments");
}

TEST_F(ServerTest, ToolsReachTheTemplateInTrainedOrder) {
  start();
  ASSERT_EQ(chat(R"("tools":[{"function":{"name":"look_up"},"type":"function"}])").status, 200);
  const auto prompt = engine_.requests().at(0).prompt;
  const auto name = to_ids("look_up");
  EXPECT_NE(std::search(prompt.begin(), prompt.end(), name.begin(), name.end()), prompt.end());
  Json out;
  const Json tools = Json::parse(
      R"([{"function":{"strict":null,"x":1,"parameters":{},"description":"d","name":"n"},)"
      R"("type":"function"}])");
  ASSERT_FALSE(normalise_tools(tools, &out));
  EXPECT_EQ(out.dump(), R"([{"type":"function","function":{"name":"n","description":"d",)"
                        R"("parameters":{},"x":1}}])");
}

TEST_F(ServerTest, BadCompletions) {
  start();
  Client client(server_->port());
  for (const char* body :
       {R"({})", R"({"prompt":5})", R"({"prompt":[]})", R"({"prompt":[1,"a"]})",
        R"({"prompt":[260]})", R"({"prompt":[-1]})", R"({"prompt":""})", R"({"prompt":[1.5]})"}) {
    const Answer answer = client.post("/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "prompt") << body;
  }
  for (const auto& [field, value] :
       {std::pair{"echo", "true"}, {"logprobs", "1"}, {"suffix", "\"x\""}, {"best_of", "2"}}) {
    const std::string body =
        std::string(R"({"prompt":"a",")") + field + "\":" + std::string(value) + "}";
    const Answer answer = client.post("/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(Json::parse(answer.body)["error"]["code"], "unsupported_parameter");
  }
}

TEST_F(ServerTest, TokenizeAndBack) {
  start();
  Client client(server_->port());
  Json body = Json::parse(client.post("/tokenize", R"({"prompt":"aé<think>"})").body);
  EXPECT_EQ(body["tokens"], Json({97, 0xC3, 0xA9, kOpen}));
  EXPECT_EQ(body["count"], 4);
  EXPECT_EQ(body["max_model_len"], 512);
  body = Json::parse(client.post("/tokenize", chat_body(R"("add_generation_prompt":false)")).body);
  EXPECT_EQ(body["tokens"].get<std::vector<TokenId>>(), to_ids("<|im_start|>user\nhi<|im_end|>\n"));
  body = Json::parse(client.post("/detokenize", R"({"tokens":[97,195,169,257]})").body);
  EXPECT_EQ(body["prompt"], "aé<|im_end|>");
  EXPECT_EQ(client.post("/detokenize", R"({"tokens":[260]})").status, 400);
  EXPECT_EQ(client.post("/tokenize", "{}").status, 400);
  EXPECT_EQ(client.post("/tokenize", "[]").status, 400);
}

}  // namespace
}  // namespace exode::server
