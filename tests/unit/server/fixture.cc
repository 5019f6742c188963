#include "fixture.h"

namespace exode::server {
namespace {

// The printable stand-in of a byte in byte-level vocabularies, as UTF-8.
std::string stand_in(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

std::string byte_tokenizer_json() {
  Json vocab = Json::object();
  for (int b = 0; b < 256; ++b) vocab[stand_in(b)] = b;
  Json added = Json::array();
  TokenId id = kImStart;
  for (const char* text : {"<|im_start|>", "<|im_end|>", "<think>", "</think>"}) {
    added.push_back({{"id", id},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", id < kOpen}});
    ++id;
  }
  const Json level = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", false},
                      {"use_regex", false}};
  const Json root = {{"version", "1.0"},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", level},
                     {"post_processor", nullptr},
                     {"decoder", level},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"vocab", vocab},
                       {"merges", Json::array()}}}};
  return root.dump();
}

std::string chat_template_source() {
  return "{%- for m in messages %}"
         "{%- if m.content == 'raise' %}{{ raise_exception('no such luck') }}{% endif -%}"
         "<|im_start|>{{ m.role }}{{ '\\n' }}{{ m.content }}<|im_end|>{{ '\\n' }}"
         "{%- endfor %}"
         "{%- for t in tools or [] %}{{ t.function.name }}{% endfor %}"
         "{%- if add_generation_prompt %}<|im_start|>assistant{{ '\\n' }}"
         "{%- if enable_thinking %}<think>{{ '\\n' }}{% endif %}{% endif %}";
}

std::vector<TokenId> to_ids(std::string_view text) {
  static constexpr std::string_view kAdded[] = {"<|im_start|>", "<|im_end|>", "<think>",
                                                "</think>"};
  std::vector<TokenId> ids;
  while (!text.empty()) {
    TokenId id = static_cast<unsigned char>(text.front());
    size_t length = 1;
    for (int i = 0; i < 4; ++i) {
      if (!text.starts_with(kAdded[i])) continue;
      id = kImStart + i;
      length = kAdded[i].size();
    }
    ids.push_back(id);
    text.remove_prefix(length);
  }
  return ids;
}

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
