#include "data/text_metrics.h"

#include <gtest/gtest.h>

#include <vector>

namespace evenkeel::data {
namespace {

using Texts = std::vector<std::string>;

TEST(NormalizeAnswer, LowersAndRemovesPunctuationArticlesAndExtraSpaces) {
  EXPECT_EQ(normalize_answer("The Cat, sat   on\n\tA mat!"), "cat sat on mat");
  EXPECT_EQ(normalize_answer("  an answer.  "), "answer");
  EXPECT_EQ(normalize_answer(R"(!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~)"), "");
  EXPECT_EQ(normalize_answer(""), "");
}

// Punctuation is removed first and leaves no gap. Words that it separated are joined, which may create or remove
// articles.
TEST(NormalizeAnswer, PunctuationIsRemovedBeforeArticles) {
  EXPECT_EQ(normalize_answer("P-CSCF"), "pcscf");
  EXPECT_EQ(normalize_answer("3.5 GHz"), "35 ghz");
  EXPECT_EQ(normalize_answer("(a) an-d the_b"), "and theb");
  EXPECT_EQ(normalize_answer("t.h.e end"), "end");
  EXPECT_EQ(normalize_answer("'A'"), "");
}

TEST(NormalizeAnswer, ArticlesAreWholeWords) {
  EXPECT_EQ(normalize_answer("theory of an anthem, banana A"), "theory of anthem banana");
  EXPECT_EQ(normalize_answer("the the a"), "");
  EXPECT_EQ(normalize_answer("a1 1a the2"), "a1 1a the2");
}

TEST(NormalizeAnswer, HandlesLettersAndSpacesBeyondAscii) {
  EXPECT_EQ(normalize_answer("ÉCLAIR Ωmega ДА"), "éclair ωmega да");
  EXPECT_EQ(normalize_answer("x\u00A0y\u2003z\u3000w"), "x y z w");
  EXPECT_EQ(normalize_answer("x\x1Fy"), "x y");
  EXPECT_EQ(normalize_answer("éa aé"), "éa aé");          // no boundary between letters
  EXPECT_EQ(normalize_answer("a®b ®"), "®b ®");           // a symbol is a boundary and is not ASCII punctuation
  EXPECT_EQ(normalize_answer("“the” end…"), "“ ” end…");  // so typographic quotes are kept
}

TEST(NormalizeAnswer, AcceptsInvalidUtf8) { EXPECT_EQ(normalize_answer("x\xFFy"), "x\uFFFDy"); }

TEST(ExactMatch, ComparesNormalisedTexts) {
  EXPECT_TRUE(exact_match("The UE.", "ue"));
  EXPECT_FALSE(exact_match("", "the"));
  EXPECT_FALSE(exact_match("UE context", "UE"));
}

TEST(TokenF1, CountsSharedWordsWithMultiplicity) {
  EXPECT_DOUBLE_EQ(token_f1("x y z", "x y z"), 1);
  EXPECT_DOUBLE_EQ(token_f1("x y", "y z w"), 0.4);        // P = 1/2, R = 1/3
  EXPECT_DOUBLE_EQ(token_f1("x x x y", "x x"), 2.0 / 3);  // P = 2/4, R = 2/2
  EXPECT_DOUBLE_EQ(token_f1("x", "y"), 0);
  EXPECT_DOUBLE_EQ(token_f1("the x", "a x!"), 1);
}

TEST(TokenF1, AnEmptyAnswerScoresZero) {
  EXPECT_DOUBLE_EQ(token_f1("", ""), 0);
  EXPECT_DOUBLE_EQ(token_f1("the", "."), 0);
  EXPECT_DOUBLE_EQ(token_f1("", "x"), 0);
  EXPECT_DOUBLE_EQ(token_f1("x", ""), 0);
}

TEST(BestMatch, IsTheMaximumOfEachMeasureOverTheReferences) {
  const auto match = best_match("x y z", Texts{"w", "x y", "The X, y z q"});
  EXPECT_DOUBLE_EQ(match.exact_match, 0);
  EXPECT_DOUBLE_EQ(match.f1, 6.0 / 7);
  EXPECT_DOUBLE_EQ(best_match("X y", Texts{"w", "x y"}).exact_match, 1);
}

TEST(BestMatch, AReferenceWithoutWordsCountsOnlyIfThereIsNoOther) {
  EXPECT_DOUBLE_EQ(best_match("", Texts{"downlink", ""}).exact_match, 0);
  for (const auto* empty : {"", " ", "the", "!"}) {
    EXPECT_DOUBLE_EQ(best_match(empty, Texts{"*"}).exact_match, 0) << empty;
    EXPECT_DOUBLE_EQ(best_match(empty, Texts{"*", "A", ""}).f1, 0) << empty;
  }
  EXPECT_DOUBLE_EQ(best_match("", Texts{"", " "}).exact_match, 0);
  EXPECT_DOUBLE_EQ(best_match(" * ", Texts{"*"}).exact_match, 1);
  EXPECT_DOUBLE_EQ(best_match("a\n", Texts{"B", "A"}).f1, 0);
  EXPECT_DOUBLE_EQ(best_match("a\n", Texts{"!", "A"}).f1, 1);
  EXPECT_DOUBLE_EQ(best_match("the", Texts{"An", "The"}).exact_match, 1);
  EXPECT_DOUBLE_EQ(best_match("x", Texts{"*", "the"}).f1, 0);
}

}  // namespace
}  // namespace evenkeel::data
