#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "base/testing.h"
#include "base/unicode/unicode.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_training.h"
#include "tokenizer/pattern.h"
#include "tokenizer/split.h"

namespace evenkeel::tokenizer {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int64_t>;

/// Returns a GPT-2-like tokenizer of all bytes (ids 0-255 in byte order), five merges and one added token.
Json small_tokenizer() {
  Json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[token_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  int64_t id = 256;
  for (const char* token : {"he", "ll", "hell", "hello", "\u0120hello"}) vocab[token] = id++;
  const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {
      {"version", "1.0"},
      {"added_tokens", {{{"id", 261}, {"content", "<end>"}, {"special", true}, {"normalized", false}}}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", level},
      {"post_processor", level},
      {"decoder", level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e", "l l", "he ll", "hell o", "\u0120 hello"}}}}};
}

Tokenizer loaded(const Json& json) { return Tokenizer::load(testing::TemporaryFile(json.dump()).path()); }

std::string error_of_text(const std::string& json) {
  const testing::TemporaryFile file(json);
  try {
    Tokenizer::load(file.path());
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.kind(), kData) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_NE(text.find(file.path().string()), std::string::npos) << text;
    return text;
  }
  return "no error";
}

std::string error_of(const Json& json) { return error_of_text(json.dump()); }

std::vector<std::string> gpt2_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, gpt2_word(text)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(Tokenizer, EqualsTheReferenceEncodings) {
  const auto folder = testing::data_folder() / "tokenizer";
  const auto reference = folder / "reference_encodings.json";
  if (!fs::exists(reference)) GTEST_SKIP() << "not there: " << reference;
  const auto tokenizer = Tokenizer::load(folder / "allenai_gpt-neox-olmo-dolma-v1_5.json");
  const auto cases = load_json(reference)["cases"];
  ASSERT_EQ(cases.size(), 88u);
  for (const auto& one : cases)
    EXPECT_EQ(tokenizer.encode(one["text"].get<std::string>()), one["ids"].get<Ids>()) << one["text"];
  EXPECT_EQ(tokenizer.vocab_size(), 50280);
  EXPECT_EQ(tokenizer.token_to_id("<|endoftext|>"), 50279);
}

TEST(Tokenizer, MergesTheLowestRankFirstAndDecodes) {
  const auto tokenizer = loaded(small_tokenizer());
  EXPECT_EQ(tokenizer.encode("hello hello"), (Ids{259, 260}));
  EXPECT_EQ(tokenizer.encode("hellx<end>h"), (Ids{258, 'x', 261, 'h'}));
  EXPECT_EQ(tokenizer.decode(Ids{259, 260, 261}), "hello hello<end>");
  EXPECT_EQ(tokenizer.decode(Ids{259, 260, 261}, true), "hello hello");
  EXPECT_EQ(tokenizer.id_to_token(260), "\u0120hello");
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(Tokenizer, DecodeReplacesInvalidBytesUnlessRaw) {
  const auto tokenizer = loaded(small_tokenizer());
  const Ids cut = {'a', 0xE2, 0x82, 'b', 0xFF};
  EXPECT_EQ(tokenizer.decode(cut), "a\uFFFDb\uFFFD");
  EXPECT_EQ(tokenizer.decode(cut, false, true), "a\xE2\x82\x62\xFF");
}

TEST(Tokenizer, SkipsUnknownIdsAndRefusesNegativeOnes) {
  const auto tokenizer = loaded(small_tokenizer());
  EXPECT_EQ(tokenizer.decode(Ids{'a', 50'000, 'b'}), "ab");
  EXPECT_THROW(tokenizer.decode(Ids{-1}), Error);
  EXPECT_THROW(tokenizer.id_to_token(262), Error);
}

TEST(Tokenizer, ReportsTheOffsetOfInvalidUtf8) {
  const auto tokenizer = loaded(small_tokenizer());
  for (const std::string bad : {"ab\xFF", "ab\xC0\x80", "ab\xED\xA0\x80", "ab\xF4\x90\x80\x80", "ab\xE2\x82"}) {
    try {
      tokenizer.encode(bad);
      FAIL() << "accepted " << Json::binary({bad.begin(), bad.end()}).dump();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("offset 2"), std::string::npos) << error.what();
    }
  }
}

TEST(Tokenizer, EncodesIdenticallyFromManyThreads) {
  const auto tokenizer = loaded(small_tokenizer());
  const std::string text = "hello there, hello world; shell 1234 hellhello";
  const auto expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) wrong[t] += tokenizer.encode(text) != expected;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, SeparatesTheCachesOfTwoTokenizers) {
  auto json = small_tokenizer();
  const auto first = loaded(json);
  json["model"]["merges"] = Json::array();
  const auto second = loaded(json);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(first.encode("hello"), Ids{259});
    EXPECT_EQ(second.encode("hello"), (Ids{'h', 'e', 'l', 'l', 'o'}));
  }
}

TEST(Tokenizer, AppliesTemplates) {
  auto json = small_tokenizer();
  json["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"a", 7}}, {"sep", {"b", 9}}};
  EXPECT_EQ(loaded(json).encode("x"), (Ids{7, 'x', 9}));
  EXPECT_EQ(loaded(json).encode("x", false), Ids{'x'});
}

TEST(Tokenizer, RefusesATemplateWithAnUnknownId) {
  auto json = small_tokenizer();
  json["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"a", 7}}, {"sep", {"b", 100'000}}};
  try {
    loaded(json);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("post_processor adds the id 100000"), std::string::npos) << error.what();
  }
}

TEST(Tokenizer, EncodesAWordOfAMegabyteQuickly) {
  const auto tokenizer = loaded(small_tokenizer());
  const std::clock_t start = std::clock();  // of the processor, which other programs do not lengthen
  const auto ids = tokenizer.encode(std::string(1 << 20, 'l'));
  EXPECT_EQ(ids.size(), size_t{1} << 19);
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
}

TEST(TokenizerFile, UnsupportedSettingsAreReportedInOneLine) {
  const auto refused = [](const char* pointer, const Json& value) {
    auto json = small_tokenizer();
    json[Json::json_pointer(pointer)] = value;
    return error_of(json);
  };
  const auto expect = [](const std::string& error, std::string_view part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  expect(refused("/version", "2.0"), "version is \"2.0\"");
  expect(refused("/model", nullptr), "model is null");
  expect(refused("/model/type", "WordLevel"), "model.type is \"WordLevel\", allowed: BPE, WordPiece, Unigram");
  expect(refused("/model/type", "Unigram"), "model.vocab is {");
  expect(refused("/model/dropout", 0.1), "model.dropout is 0.1");
  expect(refused("/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix");
  expect(refused("/model/unk_token", "<none>"), "unk_token: \"<none>\" is not in the vocabulary");
  expect(refused("/model/vocab", {"a"}), "model.vocab is [\"a\"], expected an object");
  expect(refused("/model/vocab/a", -1), "model.vocab.a is -1, allowed: 0 to 4194304");
  expect(refused("/model/vocab/a", "x"), "model.vocab.a is \"x\", expected a whole number");
  expect(refused("/model/vocab/a", int64_t{1} << 40), "model.vocab.a is 1099511627776, allowed: 0 to 4194304");
  expect(refused("/model/vocab/a", 'b'), "has id 98, which another token has too");
  expect(refused("/model/merges", nullptr), "model.merges is null, expected a list");
  expect(refused("/model/merges/0", "he"), "model.merges[0]");
  expect(refused("/model/merges/0", 5), "model.merges[0]");
  expect(refused("/model/merges/0", "h zz"), "\"zz\" is not in the vocabulary");
  expect(refused("/model/merges/0", {"q", "z"}), "\"qz\" is not in the vocabulary");
  expect(refused("/normalizer/type", "Nmt"), "normalizer.type is \"Nmt\"");
  expect(refused("/normalizer/type", "Precompiled"), "normalizer.precompiled_charsmap is missing");
  expect(refused("/pre_tokenizer/type", "Whitespace"), "pre_tokenizer.type is \"Whitespace\"");
  expect(refused("/pre_tokenizer/type", "Metaspace"), "pre_tokenizer.replacement is missing");
  expect(refused("/pre_tokenizer/use_regex", 1), "pre_tokenizer.use_regex is 1");
  expect(refused("/pre_tokenizer/type", 1), "pre_tokenizer.type is 1, expected a string");
  expect(refused("/post_processor/type", "Odd"), "post_processor.type is \"Odd\"");
  expect(refused("/decoder/type", "CTC"), "decoder.type is \"CTC\", allowed: ByteLevel, WordPiece");
  expect(refused("/added_tokens/0/content", 4), "added_tokens[0].content is 4, expected a string");
  expect(refused("/added_tokens/0/lstrip", "no"), "added_tokens[0].lstrip is \"no\"");
}

TEST(TokenizerFile, ExcessiveNestingAndGrowthAreRefusedAtOnce) {
  const auto nested = [](const std::string& key, const std::string& type, const std::string& list, size_t depth) {
    std::string text = small_tokenizer().dump();
    std::string graph, end;
    for (size_t i = 0; i < depth; ++i) {
      graph += R"({"type":"Sequence",")" + list + R"(":[)";
      end += "]}";
    }
    text.pop_back();
    return text + ",\"" + key + "\":" + graph + R"({"type":")" + type + R"("})" + end +
           "}";  // the last value of a repeated key is used
  };
  const std::clock_t start = std::clock();
  for (const auto& [key, type, list] :
       {std::array{"normalizer", "NFC", "normalizers"}, std::array{"pre_tokenizer", "ByteLevel", "pretokenizers"},
        std::array{"post_processor", "ByteLevel", "processors"}}) {
    EXPECT_EQ(error_of_text(nested(key, type, list, 60)), "no error") << key;
    EXPECT_NE(error_of_text(nested(key, type, list, 200'000)).find("more than 128 deep"), std::string::npos) << key;
  }
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
  const Json sequence = {{"Sequence", {{"id", "A"}}}};
  const Json doubling = {
      {"type", "TemplateProcessing"}, {"single", {sequence, sequence}}, {"special_tokens", Json::object()}};
  auto json = small_tokenizer();
  json["post_processor"] = doubling;
  EXPECT_NE(error_of(json).find("post_processor.single[1]: the sequence stands twice"), std::string::npos);
  Json split = {{"type", "Split"}, {"pattern", {{"String", "x"}}}, {"behavior", "Isolated"}};
  json = small_tokenizer();
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json(1000, split)}};
  EXPECT_NE(error_of(json).find("pre_tokenizer.pretokenizers[64]: more than 64 steps"), std::string::npos);
}

TEST(TokenizerFile, RefusesBrokenJsonAndMissingFiles) {
  EXPECT_THROW(Tokenizer::load(testing::TemporaryFile("{\"model\": ").path()), Error);
  EXPECT_THROW(Tokenizer::load(testing::TemporaryFile("[]").path()), Error);
  EXPECT_THROW(Tokenizer::load(testing::TemporaryFile("").path()), Error);
  EXPECT_THROW(Tokenizer::load("/nowhere/tokenizer.json"), Error);
}

TEST(Gpt2Words, FollowThePattern) {
  EXPECT_EQ(gpt2_words("it's  we'LL"), (Words{"it", "'s", " ", " we", "'", "LL"}));
  EXPECT_EQ(gpt2_words("a 12b\n\n c  "), (Words{"a", " 12", "b", "\n\n", " c", "  "}));
  EXPECT_EQ(gpt2_words("x\ny\t\tz"), (Words{"x", "\n", "y", "\t", "\t", "z"}));
  EXPECT_EQ(gpt2_words(" \u00e9t\u00e9\u00bd\u0301!"), (Words{" \u00e9t\u00e9", "\u00bd", "\u0301!"}));
  EXPECT_EQ(gpt2_words("a\u3000b \u00a0 c"), (Words{"a", "\u3000", "b", " \u00a0", " c"}));
  EXPECT_EQ(gpt2_words(" "), Words{" "});
  EXPECT_EQ(gpt2_words("'"), Words{"'"});
}

TEST(Gpt2Words, EqualTheRegularExpression) {
  const auto pattern =
      SplitPattern::regex(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  const std::vector<std::string> parts = {"'s",         "'",      " ",      "  ",         "\n",  "a",
                                          "Zz",         "9",      "\u00bd", "\u3000",     "!",   "\u0301",
                                          "\U00010D4A", "\u1C89", "\u180E", "\U0001F600", "'ll", "\x01"};
  uint64_t state = 7;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 9; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += parts[(state >> 33) % parts.size()];
    }
    Words expected;
    for (const auto& span : pattern.find(text)) expected.push_back(text.substr(span.begin, span.end - span.begin));
    EXPECT_EQ(gpt2_words(text), expected) << text;
  }
}

TEST(SplitPattern, CatastrophicBacktrackingIsReportedQuickly) {
  for (const auto* pattern : {"(a+)+[bc]", "(a|aa)+[bc]", "(?:x|(?:a|a)*)*[yz]"}) {
    const std::clock_t start = std::clock();
    try {
      SplitPattern::regex(pattern).find(std::string(100'000, 'a'));
      ADD_FAILURE() << pattern << " was run to its end";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find(concat("[data] pattern ", pattern, " on a text of 100000 bytes: ")), 0u)
          << error.what();
    }
    EXPECT_LT(std::clock() - start, 15 * CLOCKS_PER_SEC) << pattern;
  }
}

TEST(SplitPattern, FindsTheSameMatchesAtAnyDistance) {
  std::string text;
  std::vector<size_t> places;
  for (const size_t gap : {0, 1, 62, 63, 64, 65, 66, 67, 68, 127, 128, 500}) {
    for (size_t i = 0; i < gap; ++i) text += "\u00e9";
    places.push_back(text.size());
    text += "x";
  }
  std::vector<size_t> found;
  for (const auto& span : SplitPattern::regex("(?<=\u00e9|^|x)x").find(text))
    if (span.matched) found.push_back(span.begin);
  EXPECT_EQ(found, places);
}

TEST(SplitPattern, RefusesAVeryLongPattern) {
  EXPECT_THROW(SplitPattern::regex(std::string(100'000, 'a')), Error);
  EXPECT_THROW(SplitPattern::regex(std::string(10'000, '(') + std::string(10'000, ')')), Error);
}

TEST(SplitPattern, CoversTheTextAroundEmptyMatches) {
  const auto spans = SplitPattern::regex("x*").find("axxb");
  size_t at = 0;
  for (const auto& span : spans) {
    EXPECT_EQ(span.begin, at);
    at = span.end;
  }
  EXPECT_EQ(at, 4u);
}

TEST(Nfc, ComposesOrdersAndKeepsComposedText) {
  std::string storage;
  const auto nfc = [&](std::string_view text) { return std::string(unicode::nfc(text, storage)); };
  EXPECT_EQ(nfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(nfc("\u212B"), "\u00C5");
  EXPECT_EQ(nfc("a\u0301\u0323b"), "\u1EA1\u0301b");
  EXPECT_EQ(nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(nfc("\u0301a"), "\u0301a");
  const std::string composed = "d\u00e9j\u00e0 vu \u201cx\u201d \u4e2d";
  EXPECT_EQ(unicode::nfc(composed, storage).data(), composed.data());
}

TEST(Nfc, SortsALongRunOfMarksQuickly) {
  std::string marks = "a", storage;
  for (int i = 0; i < 200'000; ++i) marks += i % 2 ? "\u0323" : "\u0301";
  const std::clock_t start = std::clock();
  EXPECT_EQ(unicode::nfc(marks, storage).substr(0, 5), "\u1EA1\u0323");
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
}

TEST(AddedTokens, AreMatchedLeftmostLongestWithTheirFlags) {
  AddedTokenMatcher matcher;
  const auto add = [&](int64_t id, std::string content, auto change) {
    AddedToken token{id, content};
    change(token);
    matcher.add(content, token);
  };
  add(1, "ab", [](auto&) {});
  add(2, "abc", [](auto&) {});
  add(3, "<s>", [](auto& token) { token.lstrip = token.rstrip = true; });
  add(4, "w", [](auto& token) { token.single_word = true; });
  const auto split = [&](std::string_view text) {
    std::vector<AddedTokenMatcher::Piece> pieces;
    matcher.split(text, pieces);
    std::string out;
    for (const auto& piece : pieces) out += piece.id < 0 ? concat("[", piece.text, "]") : concat(piece.id);
    return out;
  };
  EXPECT_EQ(split("abcab"), "21");
  EXPECT_EQ(split("x \u00a0<s>\n y"), "[x]3[y]");
  EXPECT_EQ(split("w wx \u00e9w-w"), "4[ wx \u00e9w-]4");
}

TEST(ByteAlphabet, IsABijection) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(bytes_of_token(token_of_bytes(one)), one);
  }
  EXPECT_EQ(token_of_bytes(" \n"), "\u0120\u010A");
  EXPECT_FALSE(bytes_of_token("a b").has_value());
}

TEST(TokenizerTraining, MergesTheMostFrequentPairAndTiesByTheFirstIds) {
  TokenizerTraining training;
  training.special_tokens = {"<e>"};
  training.vocab_size = 257 + 2;
  const std::vector<std::string> texts = {"xyxyxy", "cdcd", "abab"};
  const auto json = parse_json(train_tokenizer(texts, training), "trained");
  EXPECT_EQ(json["model"]["merges"], (Json{"x y", "a b"}));
  EXPECT_EQ(json["model"]["vocab"]["xy"], 257);
  EXPECT_EQ(json["added_tokens"][0]["id"], 0);
}

TEST(TokenizerTraining, GivesATokenizerThatRoundTrips) {
  const std::vector<std::string> texts = {"the cat and the hat, the end\n", "na\u00efve caf\u00e9s: \U0001F600 12345"};
  TokenizerTraining training;
  training.vocab_size = 300;
  const auto tokenizer = Tokenizer::load(testing::TemporaryFile(train_tokenizer(texts, training)).path());
  for (const auto& text : texts) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_LE(tokenizer.vocab_size(), 300);
  EXPECT_EQ(tokenizer.token_to_id("<|padding|>"), 1);
}

TEST(TokenizerTraining, StopsAtTheMinimumFrequency) {
  TokenizerTraining training;
  training.min_frequency = 3;
  const std::vector<std::string> texts = {"ab ab"};
  EXPECT_TRUE(parse_json(train_tokenizer(texts, training), "trained")["model"]["merges"].empty());
}

TEST(TokenizerTraining, RefusesInvalidSizesAndSpecialTokens) {
  const std::vector<std::string> texts = {"abc"};
  TokenizerTraining training;
  training.vocab_size = 257;
  EXPECT_THROW(train_tokenizer(texts, training), Error);
  training = {};
  training.special_tokens = {"<e>", "<e>"};
  EXPECT_THROW(train_tokenizer(texts, training), Error);
  const std::vector<std::string> bad = {"a\xFF"};
  EXPECT_THROW(train_tokenizer(bad, {}), Error);
}

}  // namespace
}  // namespace evenkeel::tokenizer
