// Request bodies: any bytes must give a request or an error that is itself valid JSON.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/json.h"
#include "server/openai.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace exode::server;
  const auto body = parse_json({reinterpret_cast<const char*>(data), size});
  if (!body.ok()) return 0;
  ChatRequest chat;
  CompletionRequest completion;
  for (const Failure& failure :
       {parse_chat(body.value(), &chat), parse_completion(body.value(), &completion)}) {
    if (failure) {
      EXODE_CHECK(parse_json(error_json(*failure)).ok(), "an error answer is not JSON");
    }
  }
  EXODE_CHECK(parse_json(dump_json(body.value())).ok(), "a request does not survive dumping");
  return 0;
}
