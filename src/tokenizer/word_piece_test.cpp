#include "tokenizer/word_piece.h"

#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "tokenizer/bert.h"

namespace evenkeel::tokenizer {
namespace {

using Ids = std::vector<int64_t>;
using Words = std::vector<std::string>;

const WordPieceEncoder::Vocabulary kVocabulary{{"[UNK]", 0}, {"un", 1},  {"##aff", 2}, {"##able", 3},
                                               {"una", 4},   {"##é", 5}, {"é", 6},     {"##a", 7}};

Ids ids_of(std::string_view word, int64_t max_characters = 100) {
  Ids ids;
  WordPieceEncoder(kVocabulary, {.max_characters = max_characters}).encode(word, ids);
  return ids;
}

std::string normalized(std::string_view text, const BertNormalizer& settings = {}) {
  std::string storage;
  return std::string(settings.normalized(text, storage));
}

Words words_for_bert(std::string_view text) {
  Words words;
  bert_words(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

TEST(WordPiece, MatchesTheLongestPieceFirst) {
  EXPECT_EQ(ids_of("unaffable"), Ids{0}) << "una is longest, and no piece goes on with ffable";
  EXPECT_EQ(ids_of("unable"), (Ids{0}));
  EXPECT_EQ(ids_of("unéable"), (Ids{1, 5, 3}));
  EXPECT_EQ(ids_of("éa"), (Ids{6, 7}));
}

TEST(WordPiece, AWordWithAnUnknownPartIsUnknown) {
  Ids ids{9};
  WordPieceEncoder(kVocabulary, {}).encode("unéx", ids);
  EXPECT_EQ(ids, (Ids{9, 0}));
}

TEST(WordPiece, CountsTheLengthOfWordsInCharacters) {
  EXPECT_EQ(ids_of("éé", 2), (Ids{6, 5}));
  EXPECT_EQ(ids_of("ééé", 2), Ids{0});
}

TEST(WordPiece, RequiresTheUnknownToken) { EXPECT_THROW(WordPieceEncoder(kVocabulary, {.unk_token = "?"}), Error); }

TEST(BertText, IsCleanedSplitLowercasedAndStrippedOfAccents) {
  EXPECT_EQ(normalized("A\tB\u00a0c\x01\u200b\ufffd!"), "a b c!");
  EXPECT_EQ(normalized("Crème BRÛLÉE İ"), "creme brulee i");
  EXPECT_EQ(normalized("x東y"), "x 東 y");
  EXPECT_EQ(normalized("É\t", {.clean_text = false, .strip_accents = false}), "é\t");
  EXPECT_EQ(normalized("É", {.lowercase = false}), "É");
  EXPECT_EQ(normalized("É", {.strip_accents = true, .lowercase = false}), "E");
}

TEST(BertText, SplitsAtWhiteSpaceAndPunctuation) {
  EXPECT_EQ(words_for_bert("don't  stop--now $5 «ja»"),
            (Words{"don", "'", "t", "stop", "-", "-", "now", "$", "5", "«", "ja", "»"}));
  EXPECT_EQ(words_for_bert(" \u2028"), Words{});
}

}  // namespace
}  // namespace evenkeel::tokenizer
