// Files that are broken, hostile, or of kinds we do not have: each refusal names the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tokenizer_helper.h"

namespace exode::text {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A base spec with one field (a JSON pointer) replaced.
std::string refusal_with(const std::string& pointer, const Json& value) {
  Json spec = base_spec();
  spec[Json::json_pointer(pointer)] = value;
  return refusal(spec);
}

Json added(const Json& id, const Json& content) { return {{{"id", id}, {"content", content}}}; }

TEST(TokenizerFiles, TheBaseLoads) { EXPECT_EQ(refusal(base_spec()), "loads"); }

TEST(TokenizerFiles, NotJson) {
  EXPECT_THAT(refusal_of_text(std::string()), StartsWith("tokenizer.json: "));
  EXPECT_THAT(refusal_of_text(std::string("{\"model\": ")), StartsWith("tokenizer.json: "));
  EXPECT_THAT(refusal_of_text(std::string("[1]")), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal_of_text(std::string("{}")), HasSubstr("'model' is missing"));
  EXPECT_THAT(refusal_of_text(base_spec().dump(), "{\"eos_token\""),
              StartsWith("tokenizer_config.json: "));
  EXPECT_THAT(refusal_of_text(base_spec().dump(), "7"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal_of_text("{\"model\":{\"vocab\":{\"\xff\":1}}}"),
              StartsWith("tokenizer.json: "));
}

TEST(TokenizerFiles, DeepNesting) {
  EXPECT_THAT(refusal_of_text(repeat("[", 1000000)), StartsWith("tokenizer.json: "));
  std::string deep = "null";
  for (int i = 0; i < 5000; ++i) deep = R"({"type":"Sequence","normalizers":[)" + deep + "]}";
  EXPECT_THAT(refusal_of_text(R"({"model":{},"normalizer":)" + deep + "}"),
              StartsWith("tokenizer.json: "));
}

TEST(TokenizerFiles, Models) {
  EXPECT_THAT(refusal_with("/model", 5), HasSubstr("'vocab' is missing or not an object"));
  EXPECT_THAT(refusal_with("/model/type", "Unigram"), HasSubstr("model type 'Unigram'"));
  EXPECT_THAT(refusal_with("/model/type", 3), HasSubstr("'type' is not a string"));
  EXPECT_THAT(refusal_with("/model/byte_fallback", true), HasSubstr("byte_fallback"));
  EXPECT_THAT(refusal_with("/model/byte_fallback", "x"), HasSubstr("'byte_fallback' is not true"));
  EXPECT_THAT(refusal_with("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(refusal_with("/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(refusal_with("/model/unk_token", "nope"), HasSubstr("unk_token 'nope'"));
  EXPECT_EQ(refusal_with("/model/dropout", 0.0), "loads");
}

TEST(TokenizerFiles, Vocabularies) {
  EXPECT_THAT(refusal_with("/model/vocab", Json::array()), HasSubstr("'vocab' is missing or not"));
  EXPECT_THAT(refusal_with("/model/vocab", Json::object()), HasSubstr("vocabulary is empty"));
  EXPECT_THAT(refusal_with("/model/vocab/ab", 7), HasSubstr("two tokens have the id 7"));
  for (const Json& id : {Json(-1), Json(1.5), Json("1"), Json(nullptr), Json(int64_t{1} << 40)}) {
    EXPECT_THAT(refusal_with("/model/vocab/ab", id), HasSubstr("the id of ab is not an integer"));
  }
  std::string text = base_spec().dump();
  text.replace(text.find("\"vocab\":{"), 9, "\"vocab\":{\"a\":999,");
  EXPECT_THAT(refusal_of_text(text), HasSubstr("the token 'a' appears twice"));
}

TEST(TokenizerFiles, Merges) {
  EXPECT_THAT(refusal_with("/model/merges", "a b"), HasSubstr("'merges' is missing or not a list"));
  const auto one = [](const Json& merge) {
    return refusal_with("/model/merges", Json::array({merge}));
  };
  EXPECT_THAT(one("ab"), HasSubstr("merge 0: 'ab' is not a pair"));
  EXPECT_THAT(one(4), HasSubstr("merge 0 is not a pair of strings"));
  EXPECT_THAT(one(Json::array({"a", "b", "c"})), HasSubstr("merge 0 is not a pair of strings"));
  EXPECT_THAT(one(Json::array({"a", 1})), HasSubstr("merge 0 is not a pair of strings"));
  EXPECT_THAT(one("a b"), HasSubstr("'a' + 'b' names a token outside the vocabulary"));
  EXPECT_THAT(one("a 中"), HasSubstr("'a' + '中' names a token outside the vocabulary"));
  EXPECT_THAT(one(""), HasSubstr("is not a pair"));
}

TEST(TokenizerFiles, AddedTokens) {
  EXPECT_THAT(refusal_with("/added_tokens", 3),
              HasSubstr("'added_tokens' is missing or not a list"));
  EXPECT_THAT(refusal_with("/added_tokens", Json::array({1})),
              HasSubstr("the id of an added token"));
  EXPECT_THAT(refusal_with("/added_tokens", added(-1, "x")), HasSubstr("the id of an added token"));
  EXPECT_THAT(refusal_with("/added_tokens", added(1 << 30, "x")), HasSubstr("the id of an added"));
  EXPECT_THAT(refusal_with("/added_tokens", added(300, "")),
              HasSubstr("added token 300: 'content'"));
  EXPECT_THAT(refusal_with("/added_tokens", added(300, 5)), HasSubstr("'content' is not a string"));
  EXPECT_THAT(refusal_with("/added_tokens", added(300, repeat("x", 5000))),
              HasSubstr("5000 bytes"));
  EXPECT_THAT(refusal_with("/added_tokens", added(300, "a")), HasSubstr("has the ids 97 and 300"));
  EXPECT_THAT(refusal_with("/added_tokens", added(97, "<x>")),
              HasSubstr("the id 97 of the added token '<x>' belongs to another token"));
  EXPECT_EQ(refusal_with("/added_tokens", added(97, "a")), "loads");
  Json spec = base_spec();
  add_token(spec, 300, "<x>", {{"lstrip", "yes"}});
  EXPECT_THAT(refusal(spec), HasSubstr("added token 300: 'lstrip' is not true or false"));
}

TEST(TokenizerFiles, Configs) {
  const auto config = [](const Json& value) { return refusal(base_spec(), value); };
  EXPECT_THAT(config({{"eos_token", 5}}), HasSubstr("tokenizer_config.json: 'eos_token'"));
  EXPECT_THAT(config({{"added_tokens_decoder", 5}}), HasSubstr("'added_tokens_decoder' is not an"));
  for (const char* id : {"x", "-1", "1x", "99999999999", ""}) {
    EXPECT_THAT(config({{"added_tokens_decoder", {{id, {{"content", "<t>"}}}}}}),
                HasSubstr("is not an id in"));
  }
  EXPECT_THAT(config({{"added_tokens_decoder", {{"97", {{"content", "<t>"}}}}}}),
              HasSubstr("belongs to another token"));
}

TEST(TokenizerFiles, PartsWeDoNotHaveAreNamed) {
  EXPECT_THAT(refusal_with("/normalizer", {{"type", "NFKC"}}), HasSubstr("normalizer 'NFKC'"));
  EXPECT_THAT(refusal_with("/normalizer", 5), HasSubstr("normalizer ''"));
  EXPECT_THAT(refusal_with("/pre_tokenizer", {{"type", "Metaspace"}}),
              HasSubstr("pre-tokenizer 'Metaspace'"));
  EXPECT_THAT(refusal_with("/pre_tokenizer", nullptr), HasSubstr("'pre_tokenizer' is missing"));
  EXPECT_THAT(refusal_with("/pre_tokenizer", {{"type", "Digits"}}), HasSubstr("no ByteLevel step"));
  EXPECT_THAT(refusal_with("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder 'WordPiece'"));
  EXPECT_THAT(refusal_with("/decoder", {{"type", "Sequence"}, {"decoders", Json::array()}}),
              HasSubstr("decoder 'Sequence'"));
  EXPECT_THAT(refusal_with("/post_processor", {{"type", "BertProcessing"}}),
              HasSubstr("post-processor 'BertProcessing'"));
}

TEST(TokenizerFiles, PreTokenizerSteps) {
  const auto steps = [](const Json& list) {
    return refusal_with("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", list}});
  };
  const auto split = [&](const Json& pattern, const char* behavior) {
    return steps({{{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}},
                  byte_level(false, false)});
  };
  EXPECT_EQ(split({{"Regex", "x|y"}}, "Isolated"), "loads");
  EXPECT_THAT(split({{"Regex", "x|y"}}, "Removed"), HasSubstr("behavior 'Removed'"));
  EXPECT_THAT(split({{"String", "x"}}, "Isolated"), HasSubstr("pattern is not {\"Regex\""));
  EXPECT_THAT(split({{"Regex", "(x"}}, "Isolated"), HasSubstr("split pattern, offset 2"));
  EXPECT_THAT(split({{"Regex", repeat("x", 70000)}}, "Isolated"), HasSubstr("over 64 KiB"));
  EXPECT_THAT(split({{"Regex", repeat("(", 60000)}}, "Isolated"), HasSubstr("split pattern"));
  EXPECT_THAT(steps({byte_level(false, false), {{"type", "Digits"}}}),
              HasSubstr("'Digits' after ByteLevel"));
  EXPECT_THAT(steps("x"), HasSubstr("'pretokenizers' is missing or not a list"));
  Json many = Json::array();
  for (int i = 0; i < 100; ++i) many.push_back({{"type", "Digits"}});
  EXPECT_THAT(steps(many), HasSubstr("pre-tokenizer steps"));
}

TEST(TokenizerFiles, Templates) {
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const auto with = [](const Json& single, const Json& ids) {
    return refusal_with("/post_processor", {{"type", "TemplateProcessing"},
                                            {"single", single},
                                            {"special_tokens", {{"<s>", {{"ids", ids}}}}}});
  };
  EXPECT_EQ(with({bos, text}, {65}), "loads");
  EXPECT_THAT(with(Json::array({bos}), {65}), HasSubstr("no Sequence"));
  EXPECT_THAT(with({bos, text, 5}, {65}), HasSubstr("a piece we do not know"));
  EXPECT_THAT(with({bos, text}, {-1}), HasSubstr("the id of <s>"));
  EXPECT_THAT(with({bos, text}, {5000}), HasSubstr("adds 5000, which is no token"));
  EXPECT_THAT(with({bos, text}, "x"), HasSubstr("no ids for the special token '<s>'"));
}

TEST(TokenizerFiles, DamagedFilesNeverCrash) {
  Json spec = base_spec();
  add_merge(spec, "a", "b");
  add_token(spec, 257, "<s>", {{"special", true}});
  spec["normalizer"] = {{"type", "NFC"}};
  const std::string good = spec.dump();
  std::mt19937 random(5);
  int loaded = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (auto edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.erase(at, random() % 8);
          break;
        default:
          text.insert(at, 1, "{}[]\",:0-9e"[random() % 11]);
      }
    }
    const auto t = Tokenizer::parse(text, "");
    if (t.ok()) {
      ++loaded;
      t.value().encode("ab<s>é 1", {});
    } else {
      EXPECT_THAT(t.error().message, StartsWith("tokenizer.json: "));
    }
  }
  EXPECT_GT(loaded, 0);
}

TEST(TokenizerFiles, AMissingFolderSaysSo) {
  const auto t = Tokenizer::load("/nonexistent");
  ASSERT_FALSE(t.ok());
  EXPECT_THAT(t.error().message, HasSubstr("/nonexistent/tokenizer.json"));
}

}  // namespace
}  // namespace exode::text
