// Error messages and their positions, limits, hostile input, and the language's edges that need no
// reference output.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/chat_template.h"

namespace exode::text {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

// The output, or "error: " and the message of compiling or rendering.
std::string outcome(std::string_view source, const ordered_json& context = ordered_json::object()) {
  const auto compiled = ChatTemplate::compile(source);
  if (!compiled.ok()) return "error: " + compiled.error().message;
  const auto spans = compiled.value().render(context);
  return spans.ok() ? concat(spans.value()) : "error: " + spans.error().message;
}

std::string repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

std::string compile_error(std::string_view source) {
  const auto compiled = ChatTemplate::compile(source);
  return compiled.ok() ? "compiles" : compiled.error().message;
}

TEST(Jinja, CompileErrorsNameTheConstructAndItsPlace) {
  EXPECT_EQ(compile_error("a\n {% include 'x' %}"),
            "chat template: line 2, column 5: statement 'include' is not supported in chat "
            "templates");
  EXPECT_EQ(compile_error("é{{ x|urlize }}"),
            "chat template: line 1, column 7: filter 'urlize' is not supported in chat templates");
  EXPECT_EQ(compile_error("{{ x is escaped }}"),
            "chat template: line 1, column 9: test 'escaped' is not supported in chat templates");
  EXPECT_EQ(compile_error("{% if x %}\n"), "chat template: line 1, column 11: 'endif' is missing");
  EXPECT_THAT(compile_error("{% endfor %}"), HasSubstr("'endfor' has no statement to end"));
  EXPECT_THAT(compile_error("{% for a in b recursive %}{% endfor %}"), HasSubstr("recursive"));
  EXPECT_THAT(compile_error("{% call m() %}{% endcall %}"), HasSubstr("'call'"));
  EXPECT_THAT(compile_error("{% raw %}{% endraw %}"), HasSubstr("'raw'"));
  EXPECT_THAT(compile_error("{{ f(*x) }}"), HasSubstr("unpacked arguments"));
  EXPECT_THAT(compile_error("{{ cycler(1) }}"), HasSubstr("'cycler'"));
  EXPECT_THAT(compile_error("{% macro m() %}{{ caller() }}{% endmacro %}"), HasSubstr("'caller'"));
  EXPECT_THAT(compile_error("{{ x['a', 1] }}"), HasSubstr("index of several parts"));
  EXPECT_THAT(compile_error("{% break %}"), HasSubstr("'break' outside a loop"));
  EXPECT_THAT(compile_error("{% set true = 1 %}"), HasSubstr("cannot assign to 'true'"));
  EXPECT_THAT(compile_error("{{ 'a }}"), HasSubstr("string is not closed"));
  EXPECT_THAT(compile_error("{# a"), HasSubstr("comment is not closed"));
  EXPECT_THAT(compile_error("{{ [1) }}"), HasSubstr("unexpected ')', expected ']'"));
  EXPECT_THAT(compile_error("{{ a ; b }}"), HasSubstr("unexpected character ';'"));
  EXPECT_THAT(compile_error("{{ f(a=1, a=2) }}"), HasSubstr("given twice"));
  EXPECT_THAT(compile_error("{{ f(a=1, 2) }}"), HasSubstr("follows a named one"));
  EXPECT_THAT(compile_error("\xff"), HasSubstr("not UTF-8"));
}

TEST(Jinja, RenderErrorsNameTheirPlace) {
  EXPECT_EQ(outcome("a\n{{ 1 + 'x' }}"),
            "error: line 2, column 4: operator + does not take int and str");
  EXPECT_EQ(outcome("{{ x.y }}"), "error: line 1, column 5: 'x' is undefined");
  EXPECT_EQ(outcome("{{ x.y.z }}", {{"x", ordered_json::object()}}),
            "error: line 1, column 7: 'dict object' has no attribute 'y'");
  EXPECT_EQ(outcome("\n  {{ s|items }}", {{"s", "{}"}}),
            "error: line 2, column 8: items needs a mapping, not str");
  EXPECT_EQ(outcome("{{ raise_exception('Roles must ' ~ s) }}", {{"s", "alternate"}}),
            "error: Roles must alternate");
  EXPECT_THAT(outcome("{% macro m(a) %}{% endmacro %}{{ m(b=1) }}"), HasSubstr("no argument 'b'"));
  EXPECT_THAT(outcome("{{ d.pop('a') }}", {{"d", {{"a", 1}}}}), HasSubstr("dict.pop()"));
  EXPECT_THAT(outcome("{{ l.append(1) }}", {{"l", {1}}}), HasSubstr("change an input"));
  EXPECT_THAT(outcome("{{ ''.__class__ }}|"), HasSubstr("|"));
}

TEST(Jinja, ContextMustBeAnObject) {
  const auto compiled = ChatTemplate::compile("x");
  EXPECT_FALSE(compiled.value().render(ordered_json::array()).ok());
}

TEST(Jinja, LimitsStopRunawayTemplates) {
  EXPECT_THAT(outcome("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}"
                      "{% endfor %}"),
              HasSubstr("too much work"));
  EXPECT_THAT(outcome("{% for a in range(100000) %}{% set x = range(100000)|list %}{% endfor %}"),
              HasSubstr("error: line 1"));
  EXPECT_THAT(outcome("{{ range(100001) }}"), HasSubstr("range() exceeds 100000"));
  EXPECT_THAT(outcome("{{ 'x' * 1000000000 }}"), HasSubstr("too long"));
  EXPECT_THAT(outcome("{{ [1] * 1000000000 }}"), HasSubstr("too long"));
  EXPECT_THAT(outcome("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("too deeply"));
  EXPECT_THAT(outcome("{% set ns = namespace(s='0123456789') %}{% for i in range(40) %}"
                      "{% set ns.s = ns.s + ns.s %}{% endfor %}"),
              HasSubstr("too long"));
  EXPECT_THAT(outcome("{% set s = 'x' * 1000000 %}{% for i in range(100) %}{{ s }}{% endfor %}"),
              HasSubstr("the output exceeds 64 MiB"));
  EXPECT_THAT(outcome("{% set s = 'x' * 10000000 %}{% for i in range(100) %}"
                      "{% set t = s ~ i %}{% endfor %}"),
              HasSubstr("more memory"));
  EXPECT_THAT(outcome("{{ 2 ** 200 }}"), HasSubstr("127 bits"));
  EXPECT_THAT(outcome("{{ ''|indent(10 ** 30) }}"), HasSubstr("too large"));
}

TEST(Jinja, NestingIsBounded) {
  constexpr int kDeep = 100'000;
  EXPECT_THAT(compile_error("{{ " + repeat("(", kDeep) + "1" + repeat(")", kDeep) + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(compile_error("{{ " + repeat("[", kDeep) + repeat("]", kDeep) + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(compile_error("{{ " + repeat("not ", kDeep) + "1 }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(compile_error("{{ " + repeat("-", kDeep) + "1 }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(compile_error("{{ 1" + repeat(" if 1 else 1", kDeep) + " }}"),
              HasSubstr("nested too"));
  EXPECT_THAT(compile_error("{{ x is in " + repeat("x is in ", kDeep) + "x }}"),
              HasSubstr("too long"));
  EXPECT_THAT(compile_error(repeat("{% if 1 %}", kDeep)), HasSubstr("nested too deeply"));
  EXPECT_THAT(compile_error("{{ a" + repeat(".b", kDeep) + " }}"), HasSubstr("too long"));
  EXPECT_THAT(compile_error("{{ 1" + repeat("+1", kDeep) + " }}"), HasSubstr("too long"));
  EXPECT_THAT(compile_error("{{ a" + repeat("|list", kDeep) + " }}"), HasSubstr("too long"));
  EXPECT_THAT(compile_error("{% filter trim" + repeat("|trim", kDeep) + " %}"),
              HasSubstr("too long"));
  EXPECT_THAT(compile_error("{{ a|map(" + repeat("'map',", kDeep) + ") }}"),
              HasSubstr("too many arguments"));
  const ordered_json deep = ordered_json::parse(repeat("[", 1000) + repeat("]", 1000));
  EXPECT_THAT(outcome("{{ x }}", {{"x", deep}}), HasSubstr("nested too deeply"));
  EXPECT_THAT(outcome("{{ ('[' * 100000)|from_json }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(outcome("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}"), HasSubstr("too deeply"));
  EXPECT_THAT(outcome("{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}"),
              HasSubstr("too deeply"));
}

TEST(Jinja, ValuesOfLoopsSurviveInMacros) {
  // A macro keeps the scope of its iteration, also when the loop goes on.
  EXPECT_EQ(outcome("{% set ns = namespace() %}{% for a in [1, 2, 3] %}{% macro m() %}{{ a }}"
                    "{% endmacro %}{% if a == 2 %}{% set ns.m = m %}{% endif %}{% endfor %}"
                    "{{ ns.m() }}"),
            "2");
}

TEST(Jinja, NumbersOfTheContextKeepTheirKind) {
  const ordered_json context = ordered_json::parse(
      R"({"a": 1.0, "b": 18446744073709551615, "c": -9223372036854775808, "d": 1e400})", nullptr,
      false);
  EXPECT_TRUE(context.is_discarded());
  EXPECT_EQ(outcome("{{ a }} {{ b }} {{ c }}{{ [a, b]|tojson }}",
                    ordered_json::parse(
                        R"({"a": 1.0, "b": 18446744073709551615, "c": -9223372036854775808})")),
            "1.0 18446744073709551615 -9223372036854775808[1.0, 18446744073709551615]");
}

TEST(Jinja, LargeMappingsFindTheirKeys) {
  ordered_json object;
  for (int i = 0; i < 1000; ++i) object["key" + std::to_string(i)] = i;
  EXPECT_EQ(outcome("{{ d.key0 }} {{ d['key999'] }} {{ d.key500 }} {{ 'key1000' in d }} "
                    "{{ d|length }} {{ d[1] is defined }}",
                    {{"d", object}}),
            "0 999 500 False 1000 False");
}

TEST(Jinja, InvalidUtf8InDataDoesNotHarm) {
  const ordered_json context = {{"s", "\xff\xf0\x9f \xc3"}};
  for (const char* expression :
       {"s|trim", "s|upper", "s|length", "s[::-1]", "s|list", "s.split()", "s|tojson", "s.title()",
        "s.strip('\xc3\xa9')", "s.splitlines()", "s|tojson(ensure_ascii=true)", "[s]"}) {
    EXPECT_THAT(outcome(fmt::format("{{{{ {} }}}}", expression), context),
                ::testing::Not(HasSubstr("error")))
        << expression;
  }
}

}  // namespace
}  // namespace exode::text
