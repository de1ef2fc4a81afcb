// Tests supported and refused constructs. tests/parity/test_chat_template.py compares with Jinja.
#include "jinja/template.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace evenkeel::jinja {
namespace {

using Variables = std::vector<std::pair<std::string, Value>>;

Variables variables() {
  const auto turn = [](const char* role, const char* content) {
    return Value::dict({{"role", Value::string(role)}, {"content", Value::string(content)}});
  };
  return {{"messages", Value::list({turn("system", "s"), turn("user", " Grüße "), turn("assistant", "ok")})},
          {"n", Value::integer(5)}};
}

std::string rendered(std::string_view source) { return Template(source, "t").render(variables()).text; }

struct Case {
  std::string_view source, text;
};

TEST(JinjaTemplate, WhitespaceAroundTagsFollowsTransformersOptions) {
  for (const auto& [source, text] : std::initializer_list<Case>{{"a\n  {% if n %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},
                                                                {"a\n  {%+ if n %}b{% endif +%}\nc", "a\n  b\nc"},
                                                                {"a \n {%- if n -%} \n b {%- endif %}", "ab"},
                                                                {" {{ n }} \n{#- x -#} \n y", " 5y"},
                                                                {"  {# x #}\nz\n\n", "z\n"},
                                                                {"{% raw %}{{ n }}{% endraw %}\n|", "{{ n }}|"}})
    EXPECT_EQ(rendered(source), text) << source;
}

TEST(JinjaTemplate, ExpressionsEqualPythons) {
  for (const auto& [source, text] : std::initializer_list<Case>{
           {"{{ 7 // -2 }} {{ -7 % 3 }} {{ 2 ** 3 + 1 }} {{ 7 / 2 }} {{ 1e16 }}", "-4 2 9 3.5 1e+16"},
           {"{{ messages[1].content | trim | length }}", "5"},
           {"{{ messages[1]['content'].strip()[::-1] }}", "eßürG"},
           {"{{ messages[-1].role ~ n ~ none ~ true }}", "assistant5NoneTrue"},
           {"{{ messages | map(attribute='role') | join(', ') }}", "system, user, assistant"},
           {"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"},
           {"{{ nothing }}|{{ nothing is defined }}|{{ nothing | default('d') }}", "|False|d"},
           {"{{ 'x' if n > 3 and not nothing else 'y' }}", "x"},
           {"{{ {'a': [1, 'b', none]} | tojson }} {{ ['q', 1.0] }}", "{\"a\": [1, \"b\", null]} ['q', 1.0]"},
           {"{{ 1 < 2 < 3 }} {{ 'b' in 'abc' }} {{ 4 not in [4] }}", "True True False"}})
    EXPECT_EQ(rendered(source), text) << source;
}

TEST(JinjaTemplate, IndentSplitsAtEveryLineEnd) {
  for (const auto& [source, text] :
       std::initializer_list<Case>{{"{{ 'a\\r\\nb\\u2028c\\x0bd' | indent(2) }}", "a\n  b\n  c\n  d"},
                                   {"{{ '\\n\\x85x\\r' | indent(1, true, true) }}", " \n \n x"},
                                   {"{{ '' | indent }}|{{ 'a\\n' | indent }}", "|a\n"}})
    EXPECT_EQ(rendered(source), text) << source;
}

TEST(JinjaTemplate, NumbersAreReadInDigitsOfAllScripts) {
  EXPECT_EQ(rendered("{{ '１２' | int }} {{ '-１２' | int }} {{ '٣٤' | float }} {{ 'a１' | int(7) }}"),
            "12 -12 34.0 7");
  EXPECT_EQ(rendered("{{ [{1: 'q'}] | map(attribute='１') | join }}"), "q");
}

TEST(JinjaTemplate, TheDefaultOfMapReplacesEveryMissingPart) {
  for (const auto& [source, text] : std::initializer_list<Case>{
           {"{{ [{'b': {'c': 1}}, {}] | map(attribute='b.c', default='x') | list }}", "[1, 'x']"},
           {"{{ [{}] | map(attribute='b.c', default={'c': 2}) | list }}", "[2]"},
           {"{{ [{}] | map(attribute='b', default=none) | list }}", "[Undefined]"},
           {"{{ [{'a': 1}] | map(attribute=none) | list }}", "[{'a': 1}]"}})
    EXPECT_EQ(rendered(source), text) << source;
}

TEST(JinjaTemplate, FormatFillsTheFieldsOfAText) {
  for (const auto& [source, text] : std::initializer_list<Case>{
           {"{{ '<|{}:{}|>'.format('eos', n) }}", "<|eos:5|>"},
           {"{{ '{1}{0}{1}{{}}'.format('a', 'b') }}", "bab{}"},
           {"{{ '{x!r:>5}|{y}'.format(x='a', y=[none]) }}", "  'a'|[None]"},
           {"{{ '{:*^7}|{:08.2f}|{:+d}|{:x}'.format('ü', -2.5, n, 255) }}", "***ü***|-0002.50|+5|ff"},
           {"{{ '{}'.format(nothing) }}{{ '{0}'.format(1, 2, z=3) }}", "1"}})
    EXPECT_EQ(rendered(source), text) << source;
  for (const char* field :
       {"{", "}", "{0.real}", "{0[0]}", "{:,}", "{:{}}", "{}{0}", "{2}", "{y}", "{!a}", "{:5000}", "{:05}"})
    EXPECT_THROW(rendered(concat("{{ '", field, "'.format('a', 1) }}")), Error) << field;
}

TEST(JinjaTemplate, TuplesDifferFromLists) {
  for (const auto& [source, text] : std::initializer_list<Case>{
           {"{{ (1, 2) == [1, 2] }} {{ (1, 2) == (1, 2) }} {{ (1, 2) in [[1, 2]] }} {{ (1, 2) != [1, 2] }}",
            "False True False True"},
           {"{{ (1, 2, 3)[1:] }} {{ (1, 2) + (3,) }} {{ (1, 2)[::-1] }} {{ [1, 2][1:] }}",
            "(2, 3) (1, 2, 3) (2, 1) [2]"},
           {"{{ (1,) * 3 }} {{ 2 * [0] }} {{ [1] * -1 }} {{ () * 5 }}", "(1, 1, 1) [0, 0] [] ()"},
           {"{{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }} {{ [2] <= [1, 9] }} {{ [1, 'a'] > [1, 'b'] }}",
            "True True False False"},
           {"{{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith(()) }}", "True False"}})
    EXPECT_EQ(rendered(source), text) << source;
  for (const char* source : {"{{ (1,) + [2] }}", "{{ [1] < (2,) }}", "{{ 'abc'.startswith(['a']) }}",
                             "{{ [1] in {'a': 1} }}", "{{ [0] * 99999999 }}", "{{ [1] < ['a'] }}"})
    EXPECT_THROW(rendered(source), Error) << source;
}

TEST(JinjaTemplate, GeneratorsRangesAndViewsDifferFromLists) {
  for (const auto& [source, text] : std::initializer_list<Case>{
           {"{% for x in [1, 2] | select('odd') %}{{ loop.length }}{{ x }}{% endfor %}", "11"},
           {"{{ ([] | map('upper')) and 1 }} {{ [2, 1] | reverse | list }} {{ range(3)[-1] }}", "1 [1, 2] 2"},
           {"{{ {'a': 1}.keys() | length }} {{ 'a' in {'a': 1}.keys() }} {{ {'a': 1}.items() | list }}",
            "1 True [('a', 1)]"},
           {"{{ [nothing] }} {{ true | abs }} {{ [1, 2] | map('string') == ['1', '2'] }}", "[Undefined] 1 False"},
           {"{{ {}.keys() is sequence }} {{ range(2) is sequence }} {{ {}.keys() is iterable }}", "False True True"}})
    EXPECT_EQ(rendered(source), text) << source;
  for (const char* source :
       {"{{ [1] | map('string') | length }}", "{{ [1] | select }}", "{{ range(2) + [2] }}", "{{ {}.keys() | tojson }}",
        "{% set g = [1] | select %}{{ g | list }}{{ g | list }}", "{{ [1] | unique | last }}", "{{ nothing | int }}",
        "{{ [1] | indent }}", "{{ nothing | dictsort }}", "{% if 1 if 2 else 3 %}{% endif %}"})
    EXPECT_THROW(rendered(source), Error) << source;
}

TEST(JinjaTemplate, FiltersOfFalseValuesReturnNothing) {
  for (const char* filter : {"map('upper')", "map(attribute='x')", "select('odd')", "select", "reject('odd')",
                             "selectattr('x')", "rejectattr('x', 'equalto', 1)"})
    for (const char* given : {"none", "0", "false", "''", "[]", "{}", "nothing", "0.0"}) {
      const auto source = std::string("{{ ") + given + " | " + filter + " | list }}";
      EXPECT_EQ(rendered(source), "[]") << source;
    }
  for (const char* source : {"{{ 1 | map('upper') | list }}", "{{ true | select | list }}", "{{ none | list }}"})
    EXPECT_THROW(rendered(source), Error) << source;
}

TEST(JinjaTemplate, StatementsHaveScopes) {
  for (const auto& [source, text] : std::initializer_list<Case>{
           {"{% set a = 1 %}{% for m in messages %}{% set a = a + 1 %}{{ a }}{% endfor %}{{ a }}", "2221"},
           {"{% set s = namespace(a=1) %}{% for m in messages %}{% set s.a = s.a + 1 %}{% endfor %}{{ s.a }}", "4"},
           {"{% for m in messages if m.role != 'user' %}{{ loop.index }}{{ loop.last }}{% endfor %}", "1False2True"},
           {"{% for m in [] %}{% else %}none{% endfor %}", "none"},
           {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i > 3 %}{% break %}{% endif %}{{ i }}{% "
            "endfor %}",
            "023"},
           {"{% macro m(a, b='z') %}{{ a }}{{ b }}{{ n }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}", "1z5125"},
           {"{% set b %}<{{ n }}>{% endset %}{{ b | upper }}", "<5>"}})
    EXPECT_EQ(rendered(source), text) << source;
}

TEST(JinjaTemplate, GenerationRecordsItsRanges) {
  const Template made("{% for m in messages %}[{% generation %}{{ m.content }}.{% endgeneration %}]{% endfor %}", "t");
  const auto out = made.render(variables());
  EXPECT_EQ(out.text, "[s.][ Grüße .][ok.]");
  EXPECT_EQ(out.generated, (std::vector<ByteSpan>{{1, 3}, {5, 15}, {17, 20}}));
}

TEST(JinjaTemplate, UnsupportedConstructsAreReportedByNameAndLine) {
  for (const auto& [source, says] : std::initializer_list<Case>{
           {"\n{% include 'x' %}", "t: line 2: {% include %} is not part of the subset"},
           {"a\n\n{{ n | wordcount }}", "t line 3: the filter wordcount is not part of the subset"},
           {"{{ n is prime }}", "Jinja has no test prime"},
           {"{{ strftime_now('%Y') }}", "strftime_now needs a date"},
           {"{{ 'a'.encode() }}", "the method encode of a string"},
           {"{{ messages.append(1) }}", "the function append"},
           {"{{ nothing.x }}", "nothing is undefined"},
           {"{{ 'a' + 1 }}", "a string + a number"},
           {"{% if n %}", "{% endif %} is missing"},
           {"{{ raise_exception('roles must alternate') }}", "the chat template refuses: roles must alternate"},
           {"{{ 'Σ' | lower }}", "lower of the Greek capital sigma"}})
    EXPECT_NE(testing::refusal([&, s = source] { rendered(s); }).find(says), std::string::npos)
        << source << ": " << testing::refusal([&, s = source] { rendered(s); });
}

TEST(JinjaTemplate, ExcessiveTemplatesAreRefused) {
  const std::string deep = std::string(500, '(') + "1" + std::string(500, ')');
  for (const std::string& source :
       {std::string("{% for a in range(9999999) %}{% endfor %}"), std::string("{{ 'abc' * 999999999 }}"),
        std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "{{ " + deep + " }}",
        std::string("{% set ns = namespace(a='x') %}{% for i in range(99) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}"),
        std::string("{% set ns = namespace(a=[]) %}{% for i in range(99) %}{% set ns.a = [ns.a] %}{% endfor %}"),
        std::string(Template::kMostBytes + 1, 'x')})
    EXPECT_THROW(rendered(source), Error) << source.substr(0, 60);
}

/// Returns a template whose ns.a holds what is in `first` 2^levels times, followed by `use`.
std::string doubled(std::string_view first, std::string_view pair, int levels, std::string_view use) {
  return concat("{% set ns = namespace(a=", first, ") %}{% for i in range(", levels, ") %}{% set ns.a = ", pair,
                " %}{% endfor %}", use);
}

TEST(JinjaTemplate, ValuesThatListsShareAreVisitedWithinTheLimits) {
  const auto refused = [](const std::string& source) {
    const auto says = testing::refusal([&] { rendered(source); });
    EXPECT_NE(says.find("takes more than 4000000 steps"), std::string::npos) << source << ": " << says;
  };
  for (const char* use :
       {"{{ ns.a == ns.a }}", "{{ ns.a < ns.a }}", "{{ ns.a in [ns.a] }}", "{{ {'k': ns.a} == {'k': ns.a} }}",
        "{{ [ns.a, ns.a] | min }}", "{{ ns.a | string | length }}", "{{ ns.a | tojson | length }}",
        "{{ ns.a | tojson(indent=' ' * 1000) }}", "{{ '%s' % (ns.a,) }}", "{{ '{}'.format(ns.a) }}",
        "{{ [ns.a] | join }}"})
    refused(doubled("['x']", "[ns.a, ns.a]", 60, use));
  for (const char* use : {"{{ {ns.a: 1} }}", "{{ ns.a in {1: 2} }}", "{{ {1: 2}.get(ns.a) }}", "{{ [ns.a] | unique }}"})
    refused(doubled("('x',)", "(ns.a, ns.a)", 60, use));
  refused(doubled("['x' * 1000000]", "[ns.a, ns.a]", 10, "{{ ns.a == ns.a }}"));
  EXPECT_EQ(rendered(doubled("['x']", "[ns.a, ns.a]", 12, "{{ ns.a == ns.a }}{{ ns.a | tojson | length }}")),
            "True36860");
}

}  // namespace
}  // namespace evenkeel::jinja
