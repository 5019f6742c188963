// A server over a fake engine and the byte-level tokenizer.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "byte_text.h"
#include "client.h"
#include "fake_engine.h"
#include "server/server.h"

namespace exode::server {

class ServerTest : public ::testing::Test {
 protected:
  ServerTest();
  ~ServerTest() override;

  // Tests change config_, frontend_config_ and engine_ before this.
  void start();
  // What every request is answered with; ends with <|im_end|>.
  void reply_with(const std::string& text);
  Answer chat(const std::string& more = "", const std::string& content = "hi");
  static std::string chat_body(const std::string& more = "", const std::string& content = "hi");

  ServerConfig config_;
  FrontendConfig frontend_config_;
  FakeEngine engine_;
  text::Tokenizer tokenizer_;
  text::ChatTemplate template_;
  std::unique_ptr<Frontend> frontend_;
  std::unique_ptr<Server> server_;
};

// The JSON events of a stream, without [DONE], which must be last unless an error was.
std::vector<Json> events_of(const std::string& body);
std::string joined(const std::vector<Json>& events, const std::string& field, int index = 0);

}  // namespace exode::server
