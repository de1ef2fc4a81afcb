#include "tokenizer/pattern.h"

#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "tokenizer/character_classes.h"
#include "tokenizer/pattern_translation.h"

namespace evenkeel::tokenizer {
namespace {

std::vector<std::string> cut(std::string_view pattern, std::string_view text) {
  std::vector<std::string> out;
  for (const auto& span : SplitPattern::regex(pattern).find(text))
    out.emplace_back(text.substr(span.begin, span.end - span.begin));
  return out;
}

using Pieces = std::vector<std::string>;

TEST(PatternTranslation, KeepsPatternsThatPcre2ReadsAlike) {
  EXPECT_EQ(translate_pattern("a{,2}"), "a{0,2}");
  EXPECT_EQ(translate_pattern("a{2}?"), "(?:a{2,2})?");
  EXPECT_EQ(translate_pattern("x(?i)a|b"), "x(?:[\\x{41}\\x{61}]|[\\x{42}\\x{62}])");
  EXPECT_EQ(translate_pattern("(?<word>[\\h_])"), "(?:[\\x{30}-\\x{39}\\x{41}-\\x{46}\\x{5f}\\x{61}-\\x{66}])");
  EXPECT_EQ(translate_pattern("[a-z&&[^aeiou]]").find("[\\x{62}-\\x{64}"), 0u);
  EXPECT_EQ(translate_pattern("a(?#c)+{"), "a+\\x7b");
}

TEST(PatternTranslation, RefusesUnsupportedConstructsByName) {
  for (const char* pattern : {"\\X",
                              "a\\Kb",
                              "\\Ga",
                              "(a)+\\1",
                              "(?~ab)",
                              "(?x: a)",
                              "\\p{InBasicLatin}",
                              "[]a]",
                              "[a-\\d]",
                              "[a-b-c]",
                              "a{3,1}",
                              "(?i:(?:s)s)",
                              "(?i:f(?:i))",
                              "(?i:s{1}s)",
                              "(a)\\2",
                              "(?i)(a)\\1",
                              "(?<n>a)\\1",
                              "(?<n>a)(?<n>b)\\k<n>",
                              "(?:(a)\\1)*",
                              "(*FAIL)",
                              "[[:foo:]]",
                              "\\xe9",
                              "[",
                              "(a",
                              "a)",
                              "*a",
                              "^*",
                              "\\"}) {
    try {
      SplitPattern::regex(pattern);
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kData);
      EXPECT_NE(std::string(error.what()).find("is not supported"), std::string::npos) << error.what();
    }
  }
}

TEST(PatternTranslation, SupportsBackReferences) {
  EXPECT_EQ(cut("(a|b)c\\1", "acbacabcb"), (Pieces{"acb", "aca", "bcb"}));
  EXPECT_EQ(cut("(?<n>.)\\k<n>", "abba"), (Pieces{"a", "bb", "a"}));
  EXPECT_EQ(cut("(?:(a)|b)\\1", "baab"), (Pieces{"b", "aa", "b"})) << "a group without a match matches nothing";
  EXPECT_EQ(cut("(x)?(a|b)\\2", "aaxbb"), (Pieces{"aa", "xbb"}));
  EXPECT_EQ(translate_pattern("(a)(?<n>b)\\k<n>"), "(?:a)(b)\\g{1}") << "beside names, groups without one hold nothing";
  EXPECT_EQ(translate_pattern("(a)(b)"), "(?:a)(?:b)");
}

TEST(PatternTranslation, AdjacentLettersMatchTheLetterThatFoldsToThem) {
  const std::string sharp = "\u00df", ffi = "\ufb03", ff = "\ufb00";
  EXPECT_EQ(cut("(?i:ss)", "1ss1" + sharp + "1s"), (Pieces{"1", "ss", "1", sharp, "1s"}));
  EXPECT_EQ(cut("(?i:sss)", sharp + "s1s" + sharp), (Pieces{sharp + "s", "1s" + sharp})) << "the first two fold";
  EXPECT_EQ(cut("(?i:ffi)", ffi + "1" + ff + "i1ffi"), (Pieces{ffi, "1" + ff + "i1", "ffi"})) << "all three fold";
  EXPECT_EQ(cut("(?i:ss+)", sharp + "1ss"), (Pieces{sharp + "1", "ss"})) << "none with a repeated one";
  EXPECT_EQ(cut("(?i:(?<=ss)a)", sharp + "a1ssa"), (Pieces{sharp + "a1ss", "a"})) << "none in a look-behind";
}

TEST(PatternTranslation, UsesClassesOfUnicode16AndOniguruma) {
  EXPECT_EQ(cut("\\w+", "-\u00b2-"), (Pieces{"-", "\u00b2", "-"}));
  EXPECT_EQ(cut("[\\w]+", "a\u00b2b"), (Pieces{"a", "\u00b2", "b"}));
  EXPECT_EQ(cut("\\w+", "a\u00b2b"), (Pieces{"a\u00b2b"}));
  EXPECT_EQ(cut("\\p{Han}+", "\u4e00\u3001\u4e8c"), (Pieces{"\u4e00", "\u3001", "\u4e8c"}));
  EXPECT_EQ(cut("\\p{Hiragana}+", "\u3042\u30fc"), (Pieces{"\u3042", "\u30fc"}));
  EXPECT_EQ(cut("\\s?[A-Za-z\U00010400-\U0001044F]+", "  \U00010D5D"), (Pieces{"  \U00010D5D"}));
  EXPECT_EQ(cut("\\p{Lu}", "a\U00010D5Da"), (Pieces{"a", "\U00010D5D", "a"}));
}

TEST(PatternTranslation, AcceptsShortNamesOfProperties) {
  EXPECT_EQ(property_class("Grek"), property_class("Greek"));
  EXPECT_EQ(property_class("hani"), property_class("Han"));
  EXPECT_EQ(property_class("Qaai"), property_class("Inherited"));
  EXPECT_EQ(property_class("WSpace"), property_class("White_Space"));
  EXPECT_TRUE(property_class("Zzzz")->contains(0xE000));
  EXPECT_FALSE(property_class("Hrkt").has_value());
}

TEST(PatternTranslation, WordClassIsLargerOutsideBrackets) {
  EXPECT_EQ(cut("\\p{word}+", "a\u00b2-"), (Pieces{"a\u00b2", "-"}));
  EXPECT_EQ(cut("[\\p{Word}]+", "a\u00b2-"), (Pieces{"a", "\u00b2-"}));
  EXPECT_EQ(cut("\\P{word}+", "a\u00b2-"), (Pieces{"a\u00b2", "-"}));
  EXPECT_EQ(cut("[\\p{^word}]+", "a\u00b2-"), (Pieces{"a", "\u00b2-"}));
}

TEST(PatternTranslation, PropertySetsSupportSetOperations) {
  const auto letters = *property_class("L"), numbers = *property_class(" nu-mber");
  EXPECT_TRUE(letters.contains(0x10D50));
  EXPECT_TRUE((letters & numbers).empty());
  EXPECT_EQ((letters | numbers) - numbers, letters);
  EXPECT_EQ(letters.complement().complement(), letters);
  EXPECT_FALSE(CodeSet::all().contains(0xD800));
  EXPECT_FALSE(property_class("InBasicLatin").has_value());
}

}  // namespace
}  // namespace evenkeel::tokenizer
