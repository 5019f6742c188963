// Splitting thoughts and stop strings must not depend on how the text was cut.
#include <gtest/gtest.h>

#include "server/json.h"
#include "server/reasoning.h"
#include "server/stop_strings.h"

namespace exode::server {
namespace {

struct Halves {
  std::string thought, answer;
  bool operator==(const Halves&) const = default;
};

Halves split_text(ReasoningStart start, const std::string& text, size_t step) {
  ReasoningSplitter splitter(start, false);
  Halves halves;
  const auto add = [&](const std::vector<TextPart>& parts) {
    for (const TextPart& part : parts) {
      (part.reasoning ? halves.thought : halves.answer) += part.text;
    }
  };
  for (size_t i = 0; i < text.size(); i += step) add(splitter.feed(text.substr(i, step)));
  add(splitter.finish());
  return halves;
}

TEST(Reasoning, TextIsSplitWhateverTheCut) {
  struct Case {
    ReasoningStart start;
    std::string text;
    Halves want;
  };
  const Case cases[] = {
      {ReasoningStart::kInside, "\n a b \n</think>\n\nanswer ", {"a b", "answer "}},
      {ReasoningStart::kInside, "never closed </thin", {"never closed </thin", ""}},
      {ReasoningStart::kInside, "</think>x</think>y", {"", "x</think>y"}},
      {ReasoningStart::kOutside, "<think>t</think>a", {"t", "a"}},
      {ReasoningStart::kOutside, "plain <think>t</think>", {"", "plain <think>t</think>"}},
      {ReasoningStart::kOutside, "<thin", {"", "<thin"}},
      {ReasoningStart::kOff, "<think>t</think>a", {"", "<think>t</think>a"}},
      {ReasoningStart::kInside, "a < b </ c</think>d", {"a < b </ c", "d"}},
  };
  for (const Case& c : cases) {
    for (size_t step = 1; step <= c.text.size(); ++step) {
      const Halves got = split_text(c.start, c.text, step);
      EXPECT_EQ(got.thought, c.want.thought) << c.text << " by " << step;
      EXPECT_EQ(got.answer, c.want.answer) << c.text << " by " << step;
    }
  }
}

TEST(Reasoning, ById) {
  ReasoningSplitter splitter(ReasoningStart::kInside, true);
  EXPECT_EQ(splitter.feed("say </think> now").at(0).text, "say </think> now");
  EXPECT_TRUE(splitter.inside());
  EXPECT_TRUE(splitter.close_tag().empty());
  EXPECT_FALSE(splitter.inside());
  EXPECT_TRUE(splitter.feed("\n\n").empty());
  const auto parts = splitter.feed("yes");
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_FALSE(parts[0].reasoning);
}

TEST(Reasoning, StartComesFromTheLastMessageOnly) {
  const ReasoningTokens tokens{1, 2, 3};
  EXPECT_EQ(reasoning_start(std::vector<TokenId>{3, 9, 1, 8}, tokens), ReasoningStart::kInside);
  EXPECT_EQ(reasoning_start(std::vector<TokenId>{3, 1, 2, 8}, tokens), ReasoningStart::kOutside);
  EXPECT_EQ(reasoning_start(std::vector<TokenId>{1, 3, 9}, tokens), ReasoningStart::kOutside);
}

std::string through_stops(const std::vector<std::string>& words, const std::string& text,
                          size_t step, bool* matched) {
  StopStrings stops(words);
  std::string out;
  for (size_t i = 0; i < text.size(); i += step) out += stops.feed(text.substr(i, step));
  out += stops.finish();
  *matched = stops.matched();
  return out;
}

TEST(StopStrings, FirstMatchWinsWhateverTheCut) {
  struct Case {
    std::vector<std::string> words;
    std::string text, want;
    bool matched;
  };
  const Case cases[] = {
      {{"END"}, "one END two", "one ", true}, {{"END"}, "one EN", "one EN", false},
      {{"END"}, "EENEND", "EEN", true},       {{"abc", "bcde"}, "xabd bcde", "xabd ", true},
      {{"abcd", "bc"}, "xabcd", "x", true},   {{"abcd", "bc"}, "xabcx", "xa", true},
      {{"\n\n"}, "a\n\nb", "a", true},        {{}, "anything", "anything", false},
  };
  for (const Case& c : cases) {
    for (size_t step = 1; step <= c.text.size(); ++step) {
      bool matched = false;
      EXPECT_EQ(through_stops(c.words, c.text, step, &matched), c.want) << c.text << " by " << step;
      EXPECT_EQ(matched, c.matched) << c.text << " by " << step;
    }
  }
}

TEST(Json, StringsAreEscapedAsTheParserReadsThem) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "é漢😀";
  std::string text;
  append_json_string(&text, all);
  EXPECT_EQ(Json::parse(text).get<std::string>(), all);
}

TEST(Json, DepthAndEncodingAreChecked) {
  const std::string open(128, '['), close(128, ']');
  EXPECT_TRUE(parse_json(open + close).ok());
  EXPECT_FALSE(parse_json("[" + open + close + "]").ok());
  EXPECT_TRUE(parse_json("\"[[\\\"[[\"").ok());
  for (const char* bad : {"", "{", "[1,]", "\"\xff\"", "\"\\ud800\"", "1e999", "nan", "{} {}"}) {
    EXPECT_FALSE(parse_json(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace exode::server
