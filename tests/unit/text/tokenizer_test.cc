// What the goldens do not see: flags one by one, spans, decoding in steps, and sizes that a slow
// algorithm would not survive.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "text/pretokenizer.h"
#include "text/unicode.h"
#include "tokenizer_helper.h"

namespace exode::text {
namespace {

std::string encode(const Json& spec, const std::string& text) {
  return show(make_tokenizer(spec).encode(text, {}));
}

double milliseconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Generous: sanitizers and a busy machine stay below, a quadratic algorithm needs minutes.
constexpr double kMillisecondsMax = 20000;

TEST(Bpe, LowestRankFirstThenLeftmost) {
  Json spec = base_spec();
  const TokenId bc = add_merge(spec, "b", "c");
  const TokenId ab = add_merge(spec, "a", "b");
  const TokenId aa = add_merge(spec, "a", "a");
  const Tokenizer t = make_tokenizer(spec);
  EXPECT_EQ(t.encode("abc", {}), (std::vector<TokenId>{'a', bc}));
  EXPECT_EQ(t.encode("aab", {}), (std::vector<TokenId>{'a', ab}));
  EXPECT_EQ(t.encode("aaa", {}), (std::vector<TokenId>{aa, 'a'}));
}

TEST(Bpe, MergesMayBePairsAndALaterDuplicateCounts) {
  Json spec = base_spec();
  const TokenId ab = add_merge(spec, "a", "b");
  const TokenId bc = add_merge(spec, "b", "c");
  const auto pair = [](const char* left, const char* right) { return Json::array({left, right}); };
  spec["model"]["merges"] = Json::array({pair("a", "b"), pair("b", "c")});
  EXPECT_EQ(make_tokenizer(spec).encode("abc", {}), (std::vector<TokenId>{ab, 'c'}));
  spec["model"]["merges"] = Json::array({pair("a", "b"), pair("b", "c"), pair("a", "b")});
  EXPECT_EQ(make_tokenizer(spec).encode("abc", {}), (std::vector<TokenId>{'a', bc}));
}

TEST(Bpe, LongAndShortPiecesMergeAlike) {
  Json spec = base_spec();
  for (const char* pair : {"a b", "b a", "ab a", "ba b", "a a", "ab ab", "aba b", "aa a"}) {
    const std::string text = pair;
    const size_t space = text.find(' ');
    add_merge(spec, text.substr(0, space), text.substr(space + 1));
  }
  const Tokenizer t = make_tokenizer(spec);
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    // A byte that never merges separates: the long piece must equal its parts, which are short.
    std::string whole;
    std::vector<TokenId> parts;
    for (int part = 0; part < 8; ++part) {
      std::string text = "x";
      for (auto i = random() % 40; i > 0; --i) text += random() % 3 == 0 ? 'b' : 'a';
      whole += text;
      for (const TokenId id : t.encode(text, {})) parts.push_back(id);
    }
    ASSERT_EQ(t.encode(whole, {}), parts) << whole;
  }
}

TEST(Bpe, IgnoreMergesTakesWholePieces) {
  Json spec = base_spec();
  spec["model"]["vocab"]["abc"] = 256;  // no merge leads to it
  spec["pre_tokenizer"] = byte_level(false, true);
  EXPECT_EQ(encode(spec, "abc abc"), "abc abc");
  spec["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(spec, "abc abc"), "<256> abc");
}

TEST(Bpe, BytesOutsideTheVocabulary) {
  Json spec = base_spec();
  spec["model"]["vocab"].erase("z");
  EXPECT_EQ(encode(spec, "azzb"), "ab");
  spec["model"]["unk_token"] = "?";
  EXPECT_EQ(encode(spec, "azzb"), "a??b");
  spec["model"]["fuse_unk"] = true;
  EXPECT_EQ(encode(spec, "azzb"), "a?b");
}

TEST(PreTokenizer, KnownPatternsEqualTheGeneralEngine) {
  const std::string letters = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+)";
  const std::string rest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  for (const char* number : {R"(|\p{N})", R"(|\p{N}{1,3})"}) {
    const auto known = PieceSplitter::pattern(letters + number + rest);
    const auto other = PieceSplitter::pattern("(?:" + letters + number + rest + ")");
    ASSERT_TRUE(known.ok() && other.ok());
    std::mt19937 random(11);
    const std::vector<std::string> parts = {"a",  "B",  "é",      "7",      "12", " ",
                                            "\n", "\r", "\t",     "!",      "'s", "'LL",
                                            "'",  "中", "\u0301", "\u3000", "-"};
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (auto i = random() % 12; i > 0; --i) text += parts[random() % parts.size()];
      ASSERT_EQ(known.value().split({text}), other.value().split({text})) << text;
    }
  }
}

TEST(PreTokenizer, StepsFollowEachOther) {
  Json spec = base_spec();
  add_merge(spec, "1", "2");
  add_merge(spec, letter(' '), "1");
  EXPECT_EQ(encode(spec, " 12"), " <256>");
  const Json each = {{"type", "Digits"}, {"individual_digits", true}};
  spec["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {each, byte_level(false, true)}}};
  EXPECT_EQ(encode(spec, " 12"), " 12");
  spec["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false;
  EXPECT_EQ(encode(spec, " 12"), " <256>");
}

TEST(PreTokenizer, PrefixSpaceGoesBeforeEveryPiece) {
  Json spec = base_spec();
  spec["pre_tokenizer"] = byte_level(true, true);
  EXPECT_EQ(encode(spec, "a b"), " a b");
  EXPECT_EQ(encode(spec, " a"), " a");
  EXPECT_EQ(encode(spec, "\ta"), " \ta");
  EXPECT_EQ(encode(spec, ""), "");
  const Json digits = {{"type", "Digits"}};
  spec["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {digits, byte_level(true, false)}}};
  EXPECT_EQ(encode(spec, "a1b"), " a 1 b");
}

TEST(PreTokenizer, AnUnknownPatternThatExplodesIsBounded) {
  Json spec = base_spec();
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", "(a+)+b|(x+x+)+y"}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  spec["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {split, byte_level(false, false)}}};
  const Tokenizer t = make_tokenizer(spec);
  const std::string text = repeat("a", 3000) + repeat("x", 3000);
  EXPECT_LT(milliseconds_of([&] { EXPECT_EQ(show(t.encode(text, {})), text); }), kMillisecondsMax);
}

TEST(AddedTokens, TheLongestOfTheLeftmostWins) {
  Json spec = base_spec();
  add_token(spec, 256, "<a>");
  add_token(spec, 257, "<a><b>");
  add_token(spec, 258, "a><");
  EXPECT_EQ(encode(spec, "<a><b><a>"), "<257><256>");
  EXPECT_EQ(encode(spec, "a><a>"), "<258>a>");
  EXPECT_EQ(encode(spec, "<a"), "<a");
}

TEST(AddedTokens, SingleWord) {
  Json spec = base_spec();
  add_token(spec, 256, "go", {{"single_word", true}});
  EXPECT_EQ(encode(spec, "go, go"), "<256>, <256>");
  EXPECT_EQ(encode(spec, "goo ago"), "goo ago");
  EXPECT_EQ(encode(spec, "go_ ²go -go-"), "go_ \xc2\xb2<256> -<256>-");
  EXPECT_EQ(encode(spec, "égo go\u0301"), "\xc3\xa9go go\xcc\x81");
}

TEST(AddedTokens, StrippingTakesWhiteSpace) {
  Json spec = base_spec();
  add_token(spec, 256, "<l>", {{"lstrip", true}});
  add_token(spec, 257, "<r>", {{"rstrip", true}});
  EXPECT_EQ(encode(spec, "a \t\u3000<l> b"), "a<256> b");
  EXPECT_EQ(encode(spec, "a <r> \n\u2003b"), "a <257>b");
  EXPECT_EQ(encode(spec, "<r>  <l>"), "<257><256>");
}

TEST(AddedTokens, ATokenInsideStrippedWhiteSpaceIsFound) {
  Json spec = base_spec();
  add_token(spec, 256, "<r>", {{"rstrip", true}});
  add_token(spec, 257, "  ");
  EXPECT_EQ(encode(spec, "a<r>   b"), "a<256><257> b");
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
  Json spec = base_spec();
  spec["normalizer"] = {{"type", "NFC"}};
  add_token(spec, 256, "xe\u0301");
  add_token(spec, 257, "ye\u0301", {{"normalized", true}});
  EXPECT_EQ(encode(spec, "xe\u0301 x\u00e9"), "<256> x\xc3\xa9");
  EXPECT_EQ(encode(spec, "ye\u0301 y\u00e9"), "<257> <257>");
}

TEST(AddedTokens, SpecialOnesCanBePlainText) {
  Json spec = base_spec();
  add_token(spec, 256, "<s>", {{"special", true}});
  add_token(spec, 257, "<t>");
  add_token(spec, 258, "<n>", {{"special", true}, {"normalized", true}});
  const Tokenizer t = make_tokenizer(spec);
  EXPECT_EQ(show(t.encode("<s><t><n>", {})), "<256><257><258>");
  EXPECT_EQ(show(t.encode("<s><t><n>", {.parse_special = false})), "<s><257><n>");
  EXPECT_TRUE(t.is_special(256) && !t.is_special(257) && !t.is_special(-1) && !t.is_special(999));
}

TEST(AddedTokens, TheConfigAddsWhatTheTokenizerFileLacks) {
  Json spec = base_spec();
  add_token(spec, 256, "<s>", {{"special", true}});
  const Json config = {{"added_tokens_decoder",
                        {{"256", {{"content", "<s>"}, {"special", false}}},
                         {"300", {{"content", "<t>"}, {"special", true}}}}},
                       {"bos_token", nullptr},
                       {"eos_token", {{"content", "<t>"}}}};
  const Tokenizer t = make_tokenizer(spec, config);
  EXPECT_EQ(show(t.encode("<s><t>", {})), "<256><300>");
  EXPECT_EQ(t.size(), 301);
  EXPECT_EQ(t.eos(), 300);
  EXPECT_EQ(t.eos_string(), "<t>");
  EXPECT_EQ(t.bos_string(), "");
  EXPECT_TRUE(t.is_special(256) && t.is_special(300));
  EXPECT_EQ(t.find("<t>"), 300);
  EXPECT_EQ(t.find("\n"), 10);
  EXPECT_EQ(t.find("nope"), std::nullopt);
  EXPECT_EQ(t.token_bytes(270), "");
  EXPECT_EQ(t.decode(std::vector<TokenId>{'a', 270, -5, 100000, 'b'}, false), "ab");
}

TEST(PostProcessor, AddsWhatTheTemplatesSay) {
  Json spec = base_spec();
  add_token(spec, 256, "<s>", {{"special", true}});
  add_token(spec, 257, "</s>", {{"special", true}});
  const auto special = [](const char* name) -> Json {
    return {{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  };
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json templates = {{"type", "TemplateProcessing"},
                          {"single", {special("<s>"), text, special("</s>")}},
                          {"special_tokens",
                           {{"<s>", {{"id", "<s>"}, {"ids", {256}}}},
                            {"</s>", {{"id", "</s>"}, {"ids", {257, 257}}}}}}};
  spec["post_processor"] = {{"type", "Sequence"},
                            {"processors", {byte_level(true, true), templates}}};
  const Tokenizer t = make_tokenizer(spec);
  EXPECT_EQ(show(t.encode("a", {.add_special_tokens = true})), "<256>a<257><257>");
  EXPECT_EQ(show(t.encode("a", {})), "a");
}

class Spans : public ::testing::Test {
 protected:
  std::string encode(const std::vector<Span>& spans) {
    return show(make_tokenizer(spec_).encode_spans(spans));
  }
  Json spec_ = [] {
    Json spec = base_spec();
    spec["normalizer"] = {{"type", "NFC"}};
    add_merge(spec, "a", "b");
    add_token(spec, 257, "<s>", {{"special", true}});
    add_token(spec, 258, "<t>");
    return spec;
  }();
};

TEST_F(Spans, UserDataHasNoSpecialTokens) {
  EXPECT_EQ(encode({{"<s>", true}, {"<s><t>", false}, {"<s>", true}}), "<257><s><258><257>");
  EXPECT_EQ(encode({{"<", true}, {"s>", false}}), "<s>");
  EXPECT_EQ(encode({{"<s", false}, {"><s>", true}}), "<s><257>");
  EXPECT_EQ(encode({{"<", true}, {"", false}, {"s>", true}}), "<257>");
  EXPECT_EQ(encode({}), "");
}

TEST_F(Spans, MergesAndMarksCrossBorders) {
  EXPECT_EQ(encode({{"a", true}, {"b", false}}), "<256>");
  EXPECT_EQ(encode({{"e", true}, {"\u0301", false}}), "\xc3\xa9");
}

TEST_F(Spans, ALiteralTokenInsideAMatchThatReachesIntoDataIsFound) {
  add_token(spec_, 259, "xy", {{"special", true}});
  add_token(spec_, 260, "yz", {{"special", true}});
  EXPECT_EQ(encode({{"x", false}, {"yz", true}}), "x<260>");
}

TEST_F(Spans, NormalizedSpecialTokensObeyToo) {
  add_token(spec_, 259, "<é>", {{"special", true}, {"normalized", true}});
  EXPECT_EQ(encode({{"<e\u0301>", true}, {"<é><e\u0301>", false}, {"<é>", true}}),
            "<259><\xc3\xa9><\xc3\xa9><259>");
}

TEST_F(Spans, InvalidBytesDoNotMoveTheBorders) {
  EXPECT_EQ(encode({{"\xff\xfe", false}, {"<s>", true}, {"\xe2\x82", false}, {"<s>", true}}),
            "\xef\xbf\xbd\xef\xbf\xbd<257>\xef\xbf\xbd<257>");
}

TEST(Utf8, OneReplacementForEachMaximalPart) {
  const std::string r = "\ufffd";
  EXPECT_EQ(to_valid_utf8("a\xffz"), "a" + r + "z");
  EXPECT_EQ(to_valid_utf8("\xe2\x82"), r);
  EXPECT_EQ(to_valid_utf8("\xe2\x82z"), r + "z");
  EXPECT_EQ(to_valid_utf8("\xf0\x9f\x98\xe2\x82\xac"), r + "\u20ac");
  EXPECT_EQ(to_valid_utf8("\xed\xa0\x80"), r + r + r);
  EXPECT_EQ(to_valid_utf8("\xc0\x80\xf5"), r + r + r);
  EXPECT_EQ(to_valid_utf8("\xe0\x80\xf4\x90"), r + r + r + r);
}

TEST(Nfc, IsTheOneOfTheReference) {
  EXPECT_EQ(to_nfc("e\u0301 \u1112\u1161\u11ab \u212b"), "\u00e9 \ud55c \u00c5");
  EXPECT_EQ(to_nfc("q\u0301\u0323"), "q\u0323\u0301");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093c");  // excluded from composition
  // Newer than the reference's tables: left alone, also where utf8proc would not.
  EXPECT_EQ(to_nfc("q\u0301\u1ace\u0323"), "q\u0301\u1ace\u0323");
  EXPECT_EQ(to_nfc("\U00011935\U00011930"), "\U00011935\U00011930");
  // Newer than the utf8proc that the tables were made with: make_unicode_tables.py must run again.
  EXPECT_EQ(to_nfc("\U000105d2\u0307"), "\U000105d2\u0307");
}

TEST(StreamDecoder, HoldsBackUnfinishedCharacters) {
  const Tokenizer t = make_tokenizer(base_spec());
  StreamDecoder decoder(t, false);
  EXPECT_EQ(decoder.feed('a'), "a");
  EXPECT_EQ(decoder.feed(0xe2), "");
  EXPECT_EQ(decoder.feed(0x82), "");
  EXPECT_EQ(decoder.feed(0xac), "\u20ac");
  EXPECT_EQ(decoder.feed(0xf0), "");
  EXPECT_EQ(decoder.feed('b'),
            "\ufffd"
            "b");
  EXPECT_EQ(decoder.feed(0xff), "\ufffd");
  EXPECT_EQ(decoder.feed(0xe2), "");
  EXPECT_EQ(decoder.finish(), "\ufffd");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, JoinsToWhatDecodeSays) {
  Json spec = base_spec();
  add_merge(spec, letter(0xe2), letter(0x82));
  add_merge(spec, letter(0x9f), letter(0x98));
  add_token(spec, 258, "<s>", {{"special", true}});
  add_token(spec, 259, "é");
  spec["added_tokens"][1]["id"] = 0xe9;  // the vocabulary has that string for this byte
  const Tokenizer t = make_tokenizer(spec);
  std::mt19937 random(3);
  const std::vector<TokenId> pool = {'a',  0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xed,
                                     0xa0, 0xc3, 0xe9, 0xff, 256,  257,  258,  -1,   9999};
  for (int round = 0; round < 5000; ++round) {
    std::vector<TokenId> ids(random() % 12);
    for (TokenId& id : ids) id = pool[random() % pool.size()];
    const bool skip = random() % 2 == 0;
    StreamDecoder decoder(t, skip);
    std::string joined;
    for (const TokenId id : ids) {
      const std::string part = decoder.feed(id);
      EXPECT_TRUE(is_valid_utf8(part));
      joined += part;
    }
    joined += decoder.finish();
    ASSERT_EQ(joined, t.decode(ids, skip)) << show(ids);
  }
}

TEST(TokenizerSizes, LongRunsAreNotQuadratic) {
  Json spec = base_spec();
  for (std::string run = "a"; run.size() < 64; run += run) add_merge(spec, run, run);
  const std::string space = letter(' ');
  for (std::string run = space; run.size() < 64; run += run) add_merge(spec, run, run);
  spec["normalizer"] = {{"type", "NFC"}};
  spec["pre_tokenizer"] = byte_level(false, true);
  add_token(spec, 300, "<s>", {{"lstrip", true}, {"rstrip", true}, {"special", true}});
  add_token(spec, 301, "  ", {{"rstrip", true}});
  const Tokenizer t = make_tokenizer(spec);
  for (const char* unit : {"a", "b ", "\n", "<s> ", "<", "\u0301", "e\u0323\u0301", "中", "\xff"}) {
    const std::string text = repeat(unit, (size_t{1} << 20) / std::string(unit).size());
    EXPECT_LT(milliseconds_of([&] { EXPECT_GT(t.encode(text, {}).size(), 0u); }), kMillisecondsMax)
        << unit;
  }
  EXPECT_LT(milliseconds_of([&] { t.encode(repeat(" ", 1 << 20), {}); }), kMillisecondsMax);
}

TEST(TokenizerSizes, ManySpans) {
  Json spec = base_spec();
  add_token(spec, 256, "<s>", {{"special", true}, {"normalized", true}});
  const Tokenizer t = make_tokenizer(spec);
  std::vector<Span> spans;
  for (int i = 0; i < 100000; ++i) spans.push_back({"<s>", i % 2 == 0});
  EXPECT_LT(milliseconds_of([&] { EXPECT_EQ(t.encode_spans(spans).size(), 200000u); }),
            kMillisecondsMax);
}

}  // namespace
}  // namespace exode::text
