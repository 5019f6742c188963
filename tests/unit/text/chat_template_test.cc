// Renders against Jinja2's output (tests/golden/templates), spans, sources, variables and speed of
// structure: what a chat template does as a whole.
#include "text/chat_template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace exode::text {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::string_view kGoldens = EXODE_SOURCE_DIR "/tests/golden/templates/";

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The moment that tools/make_template_goldens.py renders at: Saturday 14 March 2026, 15:09:26.
RenderOptions golden_time() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 2;
  now.tm_mday = 14;
  now.tm_hour = 15;
  now.tm_min = 9;
  now.tm_sec = 26;
  now.tm_wday = 6;
  now.tm_yday = 72;
  return {now};
}

std::string fnv1a64(std::string_view text) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return fmt::format("{:016x}", value);
}

// "" when `text` is what the golden case describes, else what differs.
std::string difference(const ordered_json& want, const Result<std::vector<Span>>& got) {
  if (want == "error") return got.ok() ? "Jinja2 fails, we render: " + concat(got.value()) : "";
  if (!got.ok()) return "Jinja2 renders, we fail: " + got.error().message;
  const std::string text = concat(got.value());
  if (text.size() == want[0].get<size_t>() && fnv1a64(text) == want[1]) return "";
  const std::string start = want[2].get<std::string>();
  size_t same = 0;
  while (same < start.size() && same < text.size() && start[same] == text[same]) ++same;
  if (same == start.size()) {
    return fmt::format("{} bytes instead of {}, equal for the first {}:\n{}", text.size(),
                       want[0].get<size_t>(), same, text);
  }
  return fmt::format("differs at byte {}: want {:?}, got {:?}", same, start.substr(same, 40),
                     text.substr(same, 40));
}

TEST(ChatTemplate, RendersPublishedTemplatesAsJinja2Does) {
  const std::string directory = std::string(EXODE_SHARED_DIR) + "/templates/";
  if (!fs::exists(directory)) GTEST_SKIP() << directory << " is absent";
  const ordered_json golden = ordered_json::parse(read(std::string(kGoldens) + "templates.json"));
  int compared = 0;
  for (const auto& [name, cases] : golden["templates"].items()) {
    auto compiled = ChatTemplate::compile(read(directory + name + ".jinja"));
    ASSERT_TRUE(compiled.ok()) << name << ": " << compiled.error().message;
    for (const auto& [conversation, want] : cases.items()) {
      ordered_json context = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
      context.update(golden["conversations"][conversation]);
      const auto got = compiled.value().render(context, golden_time());
      EXPECT_EQ(difference(want, got), "") << name << " / " << conversation;
      ++compared;
    }
  }
  EXPECT_GE(compared, 62 * 20);
}

TEST(ChatTemplate, EvaluatesExpressionsAsJinja2Does) {
  const ordered_json golden = ordered_json::parse(read(std::string(kGoldens) + "expressions.json"));
  for (const ordered_json& pair : golden["cases"]) {
    const std::string source = pair[0].get<std::string>();
    const auto compiled = ChatTemplate::compile(source);
    if (!compiled.ok()) {
      EXPECT_TRUE(pair[1].is_null()) << source << ": " << compiled.error().message;
      continue;
    }
    const auto got = compiled.value().render(golden["context"], golden_time());
    if (pair[1].is_null()) {
      EXPECT_FALSE(got.ok()) << source << " gives " << concat(got.value());
    } else {
      ASSERT_TRUE(got.ok()) << source << ": " << got.error().message;
      EXPECT_EQ(concat(got.value()), pair[1].get<std::string>()) << source;
    }
  }
  EXPECT_GE(golden["cases"].size(), 600u);
}

std::vector<Span> spans_of(std::string_view source, const ordered_json& context) {
  auto compiled = ChatTemplate::compile(source);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  auto spans = compiled.value().render(context);
  EXPECT_TRUE(spans.ok()) << spans.error().message;
  return spans.value();
}

// Literal parts in brackets, data in braces.
std::string marked(std::string_view source, const ordered_json& context) {
  std::string out;
  for (const Span& span : spans_of(source, context)) {
    out += span.literal ? "[" + span.text + "]" : "{" + span.text + "}";
  }
  return out;
}

TEST(ChatTemplate, SpansKeepTheOriginOfText) {
  const ordered_json context = {{"s", " Ab "}, {"l", {"x", "y"}}, {"n", 3}};
  EXPECT_EQ(marked("<u>{{ s }}</u>", context), "[<u>]{ Ab }[</u>]");
  EXPECT_EQ(marked("{{ '<' + s + '>' }}", context), "[<]{ Ab }[>]");
  EXPECT_EQ(marked("{{ '<' ~ s ~ n }}", context), "[<]{ Ab }[3]");
  EXPECT_EQ(marked("{{ s|trim }}{{ s|upper }}{{ s.lower() }}", context), "{Ab AB  ab }");
  EXPECT_EQ(marked("{{ s.split('b')[0] }}|{{ s.replace('A', 'q') }}", context), "{ A}[|]{ qb }");
  EXPECT_EQ(marked("{{ 'aXb'.replace('X', s) }}", context), "{a Ab b}");
  EXPECT_EQ(marked("{{ l|join(', ') }}", context), "{x}[, ]{y}");
  EXPECT_EQ(marked("{{ l|tojson }}{{ l }}{{ [1]|tojson }}", context),
            "{[\"x\", \"y\"]['x', 'y']}[[1]]");
  EXPECT_EQ(marked("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(s)|trim }}", context),
            "[<]{ Ab }[>]");
  EXPECT_EQ(marked("{% set v %}a{{ s }}b{% endset %}{{ (v + 'c')[2:] }}", context), "{Ab }[bc]");
  EXPECT_EQ(marked("{% for c in '<' + l[0] %}{{ c }}{% endfor %}", context), "[<]{x}");
  EXPECT_EQ(marked("{% for k in {'a': 1} %}{{ k }}{% endfor %}", context), "[a]");
}

TEST(ChatTemplate, NamesTheVariablesOfTheContext) {
  auto compiled = ChatTemplate::compile(
      "{% set a = messages %}{{ a }}{% for m in tools if m.x and extra %}{{ m }}{{ loop.index }}"
      "{% endfor %}{% macro f(p, q=r) %}{{ p }}{{ late }}{{ unknown }}{% endmacro %}"
      "{% set late = range(3) %}{{ f(1) }}{{ m }}{{ raise_exception }}");
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_EQ(compiled.value().variables(),
            (std::vector<std::string>{"extra", "m", "messages", "r", "tools", "unknown"}));
}

class FindSource : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(directory_); }
  void TearDown() override { fs::remove_all(directory_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + "/" + name) << text;
  }
  Result<std::string> find(bool with_tools) const {
    return ChatTemplate::find_source(directory_, with_tools);
  }

  const std::string directory_ = std::string(EXODE_BINARY_DIR) + "/chat_template_test." +
                                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(FindSource, ReportsThatThereIsNone) {
  EXPECT_EQ(find(false).error().code, ErrorCode::kNotFound);
  write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(find(false).error().code, ErrorCode::kNotFound);
  write("tokenizer_config.json", "[");
  EXPECT_EQ(find(false).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(FindSource, PrefersTheFile) {
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(find(false).value(), "config");
  write("chat_template.jinja", "file");
  EXPECT_EQ(find(false).value(), "file");
}

TEST_F(FindSource, PicksAmongNamedTemplates) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"},
        {"name": "tool_use", "template": "t"}, {"name": 3}]})");
  EXPECT_EQ(find(false).value(), "d");
  EXPECT_EQ(find(true).value(), "t");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_EQ(find(true).error().code, ErrorCode::kNotFound);
}

std::string demo_prompt(const ordered_json& context) {
  auto compiled =
      ChatTemplate::compile(read(EXODE_SOURCE_DIR "/models/exode-demo-int4/chat_template.jinja"));
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  auto spans = compiled.value().render(context);
  return spans.ok() ? concat(spans.value()) : "error: " + spans.error().message;
}

TEST(DemoTemplate, ThinkingIsOffUnlessAskedFor) {
  ordered_json context = {{"messages", {{{"role", "user"}, {"content", " Hi\n"}}}},
                          {"add_generation_prompt", true}};
  const std::string user = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(demo_prompt(context), user + "<think>\n\n</think>\n\n");
  context["enable_thinking"] = true;
  EXPECT_EQ(demo_prompt(context), user + "<think>\n");
}

TEST(DemoTemplate, RendersAToolLoop) {
  const ordered_json call = {
      {"function", {{"name", "f"}, {"arguments", {{"a", 1}, {"b", {true}}, {"c", "x\ny"}}}}}};
  const ordered_json context = {{"messages",
                                 {{{"role", "user"}, {"content", "q"}},
                                  {{"role", "assistant"},
                                   {"content", nullptr},
                                   {"reasoning_content", " why "},
                                   {"tool_calls", {call, call}}},
                                  {{"role", "tool"}, {"content", "r1"}},
                                  {{"role", "tool"}, {"content", "r2"}}}}};
  const std::string rendered_call =
      "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n[true]\n"
      "</parameter>\n<parameter=c>\nx\ny\n</parameter>\n</function>\n</tool_call>";
  EXPECT_EQ(demo_prompt(context),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nwhy\n</think>\n\n" +
                rendered_call + "\n" + rendered_call +
                "<|im_end|>\n<|im_start|>user\n<tool_response>\nr1\n</tool_response>\n"
                "<tool_response>\nr2\n</tool_response><|im_end|>\n");
}

TEST(DemoTemplate, RejectsConversationsItWasNotTrainedOn) {
  const ordered_json system = {{"role", "system"}, {"content", "s"}};
  const ordered_json user = {{"role", "user"}, {"content", "u"}};
  EXPECT_THAT(demo_prompt({{"messages", ordered_json::array()}}), ::testing::HasSubstr("error"));
  EXPECT_THAT(demo_prompt({{"messages", {user, system}}}), ::testing::HasSubstr("first"));
  EXPECT_THAT(demo_prompt({{"messages", {{{"role", "x"}, {"content", ""}}, user}}}),
              ::testing::HasSubstr("role"));
}

}  // namespace
}  // namespace exode::text
