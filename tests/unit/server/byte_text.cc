#include "byte_text.h"

#include "server/json.h"

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

}  // namespace exode::server
