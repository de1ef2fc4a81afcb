#include "data/context_window.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/testing.h"
#include "tokenizer/bpe_training.h"

namespace evenkeel::data {
namespace {

class ContextWindow : public ::testing::Test {
 protected:
  static tokenizer::Tokenizer make_tokenizer() {
    const std::vector<std::string> texts = {"a b c d e f g h i j k l", "x a b c d e f g h i j k l"};
    return tokenizer::Tokenizer::load(
        testing::TemporaryFile(tokenizer::train_tokenizer(texts, {.vocab_size = 300})).path());
  }

  int64_t tokens(std::string_view text) const { return static_cast<int64_t>(tokenizer_.encode(text, false).size()); }
  std::optional<std::string> window(std::string_view context, KeptSpan kept, int64_t limit) const {
    return context_window(context, kept, limit, tokenizer_, [&](std::string_view text) { return 5 + tokens(text); });
  }
  std::optional<std::string> around(std::string_view context, std::string_view answer, int64_t limit) const {
    const size_t at = context.find(answer);
    return window(context, {at, at + answer.size()}, limit);
  }

  const tokenizer::Tokenizer tokenizer_ = make_tokenizer();
  // Every letter is a token, with or without one space before it.
  const std::string context_ = "a b c  d\ne f g h i j k l";
};

TEST_F(ContextWindow, IsContiguousFitsAndContainsTheAnswer) {
  for (const std::string answer : {"a", "e f", "d\ne", "l"})
    for (int64_t limit = 5 + tokens("d\ne"); limit < 5 + tokens(context_); ++limit) {
      const auto piece = around(context_, answer, limit);
      ASSERT_TRUE(piece) << answer << ", " << limit;
      EXPECT_NE(context_.find(*piece), std::string::npos) << *piece;
      EXPECT_NE(piece->find(answer), std::string::npos) << *piece;
      EXPECT_LE(5 + tokens(*piece), limit);
    }
}

TEST_F(ContextWindow, UsesTheCapacityOnBothSides) {
  EXPECT_EQ(around(context_, "h", 5 + 5), "f g h i j");
  EXPECT_EQ(around(context_, "g h", 5 + 5), "f g h i j");  // the line end before e would take two tokens
  EXPECT_EQ(around(context_, "h", 1000), context_);
}

TEST_F(ContextWindow, GrowsOnTheOtherSideWhenOneEnds) {
  EXPECT_EQ(around(context_, "k", 5 + 5), "h i j k l");
  EXPECT_EQ(around(context_, "a", 5 + 3), "a b c");
}

TEST_F(ContextWindow, WithoutAnAnswerTheEndIsRemoved) { EXPECT_EQ(window(context_, {}, 5 + 3), "a b c"); }

TEST_F(ContextWindow, IsEmptyIfTheAnswerDoesNotFit) {
  EXPECT_FALSE(around(context_, "f g h", 5 + 2));
  EXPECT_FALSE(window(context_, {}, 5));
}

TEST_F(ContextWindow, DoesNotSplitWords) {
  EXPECT_EQ(around(std::string(200, 'x') + " a " + std::string(200, 'y'), "a", 5 + 20), "a");
}

constexpr std::string_view kTokyo = "東京は日本の首都です。";  // every character is three tokens

TEST_F(ContextWindow, SplitsAtCharactersWhereAScriptHasNoSpaces) {
  const auto context = concat(kTokyo, kTokyo, kTokyo);
  EXPECT_EQ(around(context, "首都", 5 + 18), "本の首都です");
  EXPECT_EQ(window(context, {}, 5 + 11), "東京は");
  EXPECT_FALSE(around(context, "首都", 5 + 5));
  EXPECT_EQ(window(concat("a b\n", context), {}, 5 + 12), "a b\n東京は");  // the line end is a token
  EXPECT_EQ(window(concat("a 東京 b c d e f g h"), {}, 5 + 8), "a 東京");
}

TEST_F(ContextWindow, SplitsRequiredWordsThatAreLongerThanTheLimit) {
  EXPECT_EQ(window(std::string(5000, 'x'), {}, 5 + 20), std::string(20, 'x'));
  EXPECT_EQ(around(std::string(300, 'x') + "ab" + std::string(300, 'y'), "ab", 5 + 6), "xxabyy");
  EXPECT_FALSE(window(std::string(20, 'x') + " a", {}, 5 + 17));
}

TEST_F(ContextWindow, AnEmptyContextIsRefused) {
  for (const auto kept : {KeptSpan{}, KeptSpan{0, 1}, KeptSpan{3, 5}}) EXPECT_THROW(window("", kept, 10), Error);
  EXPECT_EQ(window(" \n ", {}, 10), "");
}

}  // namespace
}  // namespace evenkeel::data
