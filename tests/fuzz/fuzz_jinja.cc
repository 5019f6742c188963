// The input is a template, a zero byte and the JSON of its context. Any bytes must give text or an
// error with a message.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using exode::text::ChatTemplate;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), size);
  const auto compiled = ChatTemplate::compile(input.substr(0, zero));
  if (!compiled.ok()) {
    if (compiled.error().message.empty()) std::abort();
    return 0;
  }
  (void)compiled.value().variables();
  const std::string_view json = input.substr(std::min(zero + 1, size));
  auto context = nlohmann::ordered_json::parse(json, nullptr, false);
  if (!context.is_object()) {
    context = {{"messages", {{{"role", "user"}, {"content", "Hi <|im_end|>"}}}},
               {"add_generation_prompt", true}};
  }
  const auto spans = compiled.value().render(context);
  // raise_exception('') is an error without text.
  if (spans.ok() && exode::text::concat(spans.value()).size() > (size_t{64} << 20)) std::abort();
  return 0;
}
