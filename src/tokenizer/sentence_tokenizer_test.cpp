#include "tokenizer/sentence_tokenizer.h"

#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/testing.h"
#include "tokenizer/bpe.h"

namespace evenkeel::tokenizer {
namespace {

using Ids = std::vector<int64_t>;
constexpr int64_t kFirst = 300, kLast = 302;

/// Returns a RoBERTa tokenizer of all bytes (ids 0-255 in byte order) and " a" (256).
Json byte_tokenizer() {
  Json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[token_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  vocab["\u0120a"] = 256;
  vocab["<s>"] = kFirst;
  vocab["</s>"] = kLast;
  const auto special = [](const char* content, int64_t id) {
    return Json{{"id", id}, {"content", content}, {"special", true}, {"normalized", false}};
  };
  return {{"version", "1.0"},
          {"added_tokens", {special("<s>", kFirst), special("</s>", kLast)}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", {{"type", "RobertaProcessing"}, {"cls", {"<s>", kFirst}}, {"sep", {"</s>", kLast}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"\u0120 a"}}}}};
}

class SentenceTokenizerTest : public ::testing::Test {
 protected:
  SentenceTokenizerTest() { write("tokenizer.json", byte_tokenizer()); }

  void write(const char* name, const Json& json) const { write_file_atomic(folder_ / name, json.dump()); }
  SentenceTokenizer loaded(int64_t max_tokens = 20) const { return SentenceTokenizer::load(folder_, max_tokens); }
  std::string error() const {
    try {
      loaded();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kData);
      return error.what();
    }
    return "no error";
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(SentenceTokenizerTest, AddsASpaceBeforeTheFirstWordAndATokenAtEachEnd) {
  const auto tokenizer = loaded();
  EXPECT_EQ(tokenizer.encode("ab").ids, (Ids{kFirst, 256, 'b', kLast}));
  EXPECT_EQ(tokenizer.first(), kFirst);
  EXPECT_EQ(tokenizer.last(), kLast);
}

TEST_F(SentenceTokenizerTest, RemovesWhiteSpaceAroundATextAsPythonDoes) {
  const auto tokenizer = loaded();
  for (const char* text : {"ab", "  ab\n", "\t\x1c ab \x1f", "\u3000\u2028ab\u00a0\u0085"})
    EXPECT_EQ(tokenizer.encode(text).ids, (Ids{kFirst, 256, 'b', kLast})) << text;
  EXPECT_EQ(tokenizer.encode("\u200b").ids.size(), 2u + 4u) << "a zero-width space is no white space";
}

TEST_F(SentenceTokenizerTest, ABlankTextGivesTheTwoEndTokens) {
  for (const char* text : {"", " ", "\n\u2003\t"}) {
    const auto sentence = loaded().encode(text);
    EXPECT_EQ(sentence.ids, (Ids{kFirst, kLast}));
    EXPECT_FALSE(sentence.cut);
  }
}

TEST_F(SentenceTokenizerTest, TruncationKeepsTheLastToken) {
  const auto fits = loaded(6).encode("abcd"), cut = loaded(5).encode("abcd");
  EXPECT_EQ(fits.ids, (Ids{kFirst, 256, 'b', 'c', 'd', kLast}));
  EXPECT_FALSE(fits.cut);
  EXPECT_EQ(cut.ids, (Ids{kFirst, 256, 'b', 'c', kLast}));
  EXPECT_TRUE(cut.cut);
}

TEST_F(SentenceTokenizerTest, TheSmallerLimitOfTokenizerAndEncoderApplies) {
  write("tokenizer_config.json", {{"model_max_length", 7}});
  EXPECT_EQ(loaded(20).max_tokens(), 7);
  EXPECT_EQ(loaded(6).max_tokens(), 6);
  write_file_atomic(folder_ / "tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(loaded(20).max_tokens(), 20);
}

TEST_F(SentenceTokenizerTest, UnsupportedSettingsAreReportedWithTheFile) {
  auto json = byte_tokenizer();
  json["post_processor"] = nullptr;
  write("tokenizer.json", json);
  EXPECT_NE(error().find("tokenizer.json: the post_processor puts 0 special tokens"), std::string::npos) << error();
  auto unigram = json;
  unigram["added_tokens"] = Json::array();
  unigram["model"] = {{"type", "Unigram"}, {"vocab", Json::array({Json::array({"a", -1.5})})}};
  unigram["pre_tokenizer"] = nullptr;
  write("tokenizer.json", unigram);
  EXPECT_NE(error().find("an encoder needs byte-level BPE or WordPiece"), std::string::npos) << error();
  write("tokenizer.json", byte_tokenizer());
  write("tokenizer_config.json", {{"truncation_side", "left"}});
  EXPECT_NE(error().find("truncation_side is \"left\""), std::string::npos) << error();
  write("tokenizer_config.json", {{"model_max_length", 2}});
  EXPECT_NE(error().find("model_max_length is 2"), std::string::npos) << error();
  fs::remove(folder_ / "tokenizer.json");
  EXPECT_NE(error().find("needs a tokenizer"), std::string::npos) << error();
}

TEST_F(SentenceTokenizerTest, WordPieceAddsNoSpace) {
  const Json vocab{{"[UNK]", 0}, {"[CLS]", 1}, {"[SEP]", 2}, {"ab", 3}, {"##c", 4}};
  write("tokenizer.json",
        {{"version", "1.0"},
         {"normalizer",
          {{"type", "BertNormalizer"}, {"clean_text", true}, {"handle_chinese_chars", true}, {"lowercase", true}}},
         {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
         {"post_processor", {{"type", "BertProcessing"}, {"cls", {"[CLS]", 1}}, {"sep", {"[SEP]", 2}}}},
         {"model",
          {{"type", "WordPiece"},
           {"unk_token", "[UNK]"},
           {"continuing_subword_prefix", "##"},
           {"max_input_chars_per_word", 100},
           {"vocab", vocab}}}});
  EXPECT_EQ(loaded().encode("  ABC ab\n").ids, (Ids{1, 3, 4, 3, 2}));
  EXPECT_EQ(loaded().encode(" ").ids, (Ids{1, 2}));
}

TEST_F(SentenceTokenizerTest, RefusesInvalidUtf8) { EXPECT_THROW(loaded().encode("a\xff"), Error); }

}  // namespace
}  // namespace evenkeel::tokenizer
