// Ids and texts of a corpus against the `tokenizers` package (tools/make_tokenizer_goldens.py).
// Goldens hold checksums; on a difference the test prints the string to look at.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "text/tokenizer.h"

namespace exode::testing {
namespace {

using Json = nlohmann::ordered_json;

const std::string kGoldens = EXODE_SOURCE_DIR "/tests/golden/tokenizer/";
constexpr size_t kLimit = 100 << 20;

std::string read(const std::string& path, const char* hint = "") {
  auto text = read_text_file(path, kLimit);
  if (text.ok()) return text.value();
  ADD_FAILURE() << text.error().message << hint;
  return {};
}

uint32_t crc32(std::span<const std::byte> data) {
  uint32_t crc = ~0u;
  for (const std::byte b : data) {
    crc ^= static_cast<uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1u)));
  }
  return ~crc;
}

uint32_t take_u32(std::string_view& data) {
  uint32_t value = 0;
  if (data.size() < sizeof(value)) {
    ADD_FAILURE() << "truncated golden";
    return 0;
  }
  std::memcpy(&value, data.data(), sizeof(value));
  data.remove_prefix(sizeof(value));
  return value;
}

std::vector<std::string> corpus() {
  const std::string packed = read(EXODE_BINARY_DIR "/assets/tokenizer_corpus.bin");
  std::vector<std::string> strings;
  for (std::string_view rest = packed; !rest.empty();) {
    const size_t length = std::min<size_t>(take_u32(rest), rest.size());
    strings.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return strings;
}

uint32_t sum(const std::vector<TokenId>& ids) { return crc32(std::as_bytes(std::span(ids))); }
uint32_t sum(const std::string& text) { return crc32(std::as_bytes(std::span(text))); }

void expect_equal(const text::Tokenizer& tokenizer, const std::string& name) {
  const std::vector<std::string> strings = corpus();
  ASSERT_GE(strings.size(), 10000u);
  const std::string file = read(kGoldens + name + ".bin");
  ASSERT_EQ(file.size(), strings.size() * 3 * sizeof(uint32_t));
  std::string_view golden = file;
  int wrong = 0;
  for (const std::string& s : strings) {
    const std::vector<TokenId> ids = tokenizer.encode(s, {});
    const std::array got = {sum(ids), sum(tokenizer.encode(s, {.parse_special = false})),
                            sum(tokenizer.decode(ids, true))};
    const std::array want = {take_u32(golden), take_u32(golden), take_u32(golden)};
    if (got == want) continue;
    if (++wrong <= 5) {
      ADD_FAILURE() << name << ": ids " << (got[0] == want[0]) << ", without special tokens "
                    << (got[1] == want[1]) << ", decoded " << (got[2] == want[2]) << ": "
                    << ::testing::PrintToString(s.substr(0, 200)) << " → "
                    << ::testing::PrintToString(std::vector(
                           ids.begin(), ids.begin() + std::min<long>(40, std::ssize(ids))));
    }
  }
  EXPECT_EQ(wrong, 0) << "of " << strings.size() << " strings";
  ::testing::Test::RecordProperty("strings", static_cast<int>(strings.size()));
}

// As the Python side does it: objects are merged, a field with a "type" and all else is replaced.
void patch(Json& value, const Json& changes) {
  if (!changes.is_object() || !value.is_object() || changes.contains("type")) {
    value = changes;
    return;
  }
  for (const auto& item : changes.items()) patch(value[item.key()], item.value());
}

class TokenizerGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, Equal) {
  const std::string name = GetParam();
  const bool demo = name == "demo";
  const std::string folder =
      demo ? EXODE_SOURCE_DIR "/models/exode-demo-int4" : EXODE_TOKENIZERS_DIR "/" + name;
  const auto tokenizer = text::Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message
                              << "; run tools/fetch_tokenizers.py " EXODE_TOKENIZERS_DIR;
  expect_equal(tokenizer.value(), name);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, TokenizerGolden, ::testing::Values("demo", "qwen", "smollm2"));

class TokenizerVariant : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerVariant, Equal) {
  const std::string name = GetParam();
  Json spec = Json::parse(read(EXODE_SOURCE_DIR "/models/exode-demo-int4/tokenizer.json"));
  patch(spec, Json::parse(read(kGoldens + "variants.json")).at(name));
  const auto tokenizer = text::Tokenizer::parse(spec.dump(), "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  expect_equal(tokenizer.value(), name);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, TokenizerVariant,
                         ::testing::Values("llama3", "gpt2", "prefix", "flags"));

}  // namespace
}  // namespace exode::testing
