// Patterns that have no scanner of their own, against the reference, and the demo model's tokenizer
// on sizes that a request may have.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>

#include "tokenizer_helper.h"

namespace exode::text {
namespace {

using Parts = std::vector<std::string>;

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Json split(const std::string& regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

// Each of `tokens` is a token that only a whole piece becomes: ids show where text was split.
Tokenizer splitting(const Parts& regexes, const Parts& tokens) {
  Json spec = base_spec();
  spec["model"]["ignore_merges"] = true;
  Json steps = Json::array();
  for (const std::string& regex : regexes) steps.push_back(split(regex));
  steps.push_back(byte_level(false, false));
  spec["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  TokenId id = 256;
  for (const std::string& token : tokens) {
    std::string written;
    for (const char c : token) written += letter(static_cast<uint8_t>(c));
    if (!spec["model"]["vocab"].contains(written)) spec["model"]["vocab"][written] = id++;
  }
  return make_tokenizer(spec);
}

Parts split_text(const Tokenizer& t, const std::string& text) {
  Parts parts;
  for (const TokenId id : t.encode(text, {})) parts.emplace_back(t.token_bytes(id));
  return parts;
}

const Parts kDeepSeek = {
    R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Each list is what the `tokenizers` package 0.23.3 makes of its concatenation.
TEST(RegexSplit, UnknownPatternsSplitLikeTheReference) {
  const std::vector<Parts> wanted = {
      {"hello", " world"},
      {"x", "=", "123", "456", "7", ";\r\n\n", " ", " y"},
      {"don", "'t", " .", "foo", " /", "bar"},
      {"\u4f60\u597d", "world", " ", "\u4e16\u754c\u30ab\u30bf\u30ab\u30ca", "12"},
      {"  \n\n", " \t", " z", " "},
      {"nai\u0308ve", " e\u0301te\u0301", " ", "\u00bd\u00b2"},
      {"!!!\n\n", "???"},
      {"a", "_b", " (", "c", ")", " [", "d", "]"},
      {"price", ":", " $", "1", ",", "234", ".", "56"},
      {"\u3000", "\u00a0x"},
      {"emoji", " \U0001f469", "\u200d", "\U0001f469", "\u200d", "\U0001f467!"},
      {"tab", "\tend", "\t\t"}};
  Parts tokens;
  for (const Parts& parts : wanted) {
    // The whole text, too: where nothing is split it shows as one token.
    std::string& whole = tokens.emplace_back();
    for (const std::string& part : parts) whole += part;
    tokens.insert(tokens.end(), parts.begin(), parts.end());
  }
  const Tokenizer t = splitting(kDeepSeek, tokens);
  for (const Parts& parts : wanted) {
    std::string text;
    for (const std::string& part : parts) text += part;
    EXPECT_EQ(split_text(t, text), parts) << text;
  }
}

TEST(RegexSplit, EmptyMatchesAndGaps) {
  const Tokenizer empty = splitting({"x*"}, {"ab", "xx", "abxxab", "\u00e9"});
  EXPECT_EQ(split_text(empty, "abxxab"), (Parts{"ab", "xx", "ab"}));
  EXPECT_EQ(split_text(empty, "\u00e9"), Parts{"\u00e9"});
  EXPECT_EQ(split_text(empty, ""), Parts{});
  const Tokenizer gaps = splitting({"b"}, {"aa", "aabaa", "bb"});
  EXPECT_EQ(split_text(gaps, "aabaabb"), (Parts{"aa", "b", "aa", "b", "b"}));
}

TEST(RegexSplit, PatternsThatExplodeAreBounded) {
  const std::string text = repeat("a", 20'000) + "!";
  for (const char* regex : {"(a+)+$", "(a|aa)+$", "(.*.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"}) {
    const Tokenizer t = splitting({regex}, {});
    std::vector<TokenId> ids;
    EXPECT_LT(seconds([&] { ids = t.encode(text, {}); }), 20.0) << regex;
    EXPECT_EQ(t.decode(ids, false), text) << regex;
  }
}

class DemoTokenizer : public ::testing::Test {
 protected:
  static Tokenizer load() {
    auto loaded = Tokenizer::load(EXODE_SOURCE_DIR "/models/exode-demo-int4");
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return std::move(loaded).value();
  }
#if defined(__SANITIZE_ADDRESS__)
  static constexpr double kSecondsMax = 20;
#else
  static constexpr double kSecondsMax = 2;
#endif
};

TEST_F(DemoTokenizer, LoadsQuickly) {
  EXPECT_LT(seconds([] { load(); }), kSecondsMax);
}

TEST_F(DemoTokenizer, AMegabyteOfOneThing) {
  const Tokenizer t = load();
  for (const std::string unit :
       {"a", " ", "\n", "ab", " a", "\t ", "=", "0", "\u00e9", "\u3042", "\r\n", "<|im_"}) {
    const std::string text = repeat(unit, (size_t{1} << 20) / unit.size());
    std::vector<TokenId> ids;
    std::string decoded;
    EXPECT_LT(seconds([&] { ids = t.encode(text, {}); }), kSecondsMax) << unit;
    EXPECT_LT(seconds([&] { decoded = t.decode(ids, false); }), kSecondsMax) << unit;
    EXPECT_TRUE(decoded == text) << unit;  // EXPECT_EQ would print both
  }
}

TEST_F(DemoTokenizer, StreamsWhatDecodeSays) {
  const Tokenizer t = load();
  std::mt19937 random(2);
  for (int round = 0; round < 2'000; ++round) {
    const int32_t range = random() % 2 == 0 ? 300 : t.size();  // bytes often, else any token
    std::vector<TokenId> ids(1 + random() % 40);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<uint32_t>(range));
    StreamDecoder decoder(t, true);
    std::string joined;
    for (const TokenId id : ids) joined += decoder.feed(id);
    joined += decoder.finish();
    ASSERT_EQ(joined, t.decode(ids, true)) << ::testing::PrintToString(ids);
  }
}

TEST_F(DemoTokenizer, SpansOfOneKindAreEncode) {
  const Tokenizer t = load();
  const Parts parts = {"<|im_start|>", "user",   "\n", "<|im_", "end|>", "<think>",    " x", "e",
                       "\u0301",       "\u3042", "  ", "42",    "\xff",  "\U0001f600", "'ll"};
  std::mt19937 random(4);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<Span> spans;
    std::string text;
    const bool literal = random() % 2 == 0;
    for (auto i = random() % 12; i > 0; --i) {
      spans.push_back({parts[random() % parts.size()], literal});
      text += spans.back().text;
    }
    ASSERT_EQ(t.encode_spans(spans), t.encode(text, {.parse_special = literal})) << text;
  }
}

TEST(TokenizerCuts, NoPrefixOfAFileLoads) {
  const std::string whole = base_spec().dump();
  for (size_t length = 0; length < whole.size(); length += 1 + length / 64) {
    EXPECT_NE(refusal_of_text(whole.substr(0, length)), "loads") << length;
  }
}

}  // namespace
}  // namespace exode::text
