#include "tokenizer/unigram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <limits>

#include "base/plain/base64.h"
#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/random/random.h"
#include "base/unicode/graphemes.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/library_number.h"

namespace evenkeel::tokenizer {
namespace {

using Ids = std::vector<int64_t>;
using Scored = std::vector<std::pair<std::string, double>>;

UnigramOptions options_of(const Scored& scored, bool byte_fallback = false) {
  UnigramOptions options{.pieces = {}, .scores = {}, .unk_id = 0, .byte_fallback = byte_fallback};
  for (const auto& [piece, score] : scored) options.pieces.push_back(piece), options.scores.push_back(score);
  return options;
}

Ids ids_of(const UnigramOptions& options, std::string_view word) {
  Ids out;
  UnigramEncoder(options).encode(word, out);
  return out;
}

std::string refusal_of(const UnigramOptions& options, std::string_view word = "a") {
  try {
    ids_of(options, word);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kData);
    return error.what();
  }
  return "no error";
}

TEST(Unigram, TakesTheDivisionWithTheHighestSum) {
  const auto options = options_of(
      {{"<unk>", 0}, {"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}, {"cd", 1}, {"ab", 2}, {"abc", 5}, {"abcd", 10}});
  EXPECT_EQ(ids_of(options, "abcdacd"), (Ids{8, 1, 5}));
  EXPECT_EQ(ids_of(options, "abcbcd"), (Ids{7, 2, 5}));
}

TEST(Unigram, OfEqualSumsTheDivisionThatIsFoundFirstCounts) {
  EXPECT_EQ(ids_of(options_of({{"<unk>", -9}, {"a", -1}, {"aa", -2}}), "aaa"), (Ids{1, 2}));
  EXPECT_EQ(ids_of(options_of({{"<unk>", -9}, {"a", -1}, {"aa", -1}, {"aaa", -2}}), "aaaa"), (Ids{2, 2}));
}

TEST(Unigram, ARunOfUnknownCharactersIsOneToken) {
  const auto options = options_of({{"<unk>", -2}, {"a", -1}});
  EXPECT_EQ(ids_of(options, "a\u00e9\u00e9a\U0001F600"), (Ids{1, 0, 1, 0}));
  EXPECT_EQ(ids_of(options, "<unk>x"), Ids{0}) << "the token's own text belongs to the run";
}

TEST(Unigram, ARunBecomesBytesOnlyIfAllHaveAPiece) {
  const Scored scored{{"<unk>", -2}, {"a", -1}, {"<0xC3>", -3}, {"<0xA9>", -3}};
  EXPECT_EQ(ids_of(options_of(scored, true), "a\u00e9\u00e9a"), (Ids{1, 2, 3, 2, 3, 1}));
  EXPECT_EQ(ids_of(options_of(scored, true), "a\u00e9\u00e8a"), (Ids{1, 0, 1})) << "no piece for 0xA8";
  EXPECT_EQ(ids_of(options_of(scored, false), "a\u00e9a"), (Ids{1, 0, 1}));
}

TEST(Unigram, WithoutAnUnknownTokenAnUnknownCharacterIsAnError) {
  auto options = options_of({{"a", -1}, {"bc", -1}});
  options.unk_id.reset();
  EXPECT_EQ(ids_of(options, "aa"), (Ids{0, 0}));
  EXPECT_NE(refusal_of(options, "ax").find("no piece for \"x\", and model.unk_id is null"), std::string::npos);
  EXPECT_NE(refusal_of(options, "bc").find("no piece for \"b\""), std::string::npos) << "as the library";
}

TEST(Unigram, EqualsTheBestOfAllDivisions) {
  RandomStream stream(7, "pieces", 0, 0);
  for (int round = 0; round < 40; ++round) {
    Scored scored{{"<unk>", -30}, {"a", -4}, {"b", -5.5}};
    for (int i = 0; i < 12; ++i) {
      std::string piece;
      for (int64_t n = 2 + stream.below(4); n > 0; --n) piece += stream.below(2) ? 'a' : 'b';
      const bool known = std::any_of(scored.begin(), scored.end(), [&](const auto& one) { return one.first == piece; });
      if (!known) scored.emplace_back(piece, -3 - 8 * stream.uniform());
    }
    std::string word;
    for (int i = 0; i < 14; ++i) word += stream.below(2) ? 'a' : 'b';
    std::vector<double> best(word.size() + 1, -std::numeric_limits<double>::infinity());
    best[0] = 0;
    for (size_t at = 0; at < word.size(); ++at)
      for (const auto& [piece, score] : scored)
        if (word.compare(at, piece.size(), piece) == 0)
          best[at + piece.size()] = std::max(best[at + piece.size()], best[at] + score);
    double sum = 0;
    std::string joined;
    for (const int64_t id : ids_of(options_of(scored), word)) sum += scored[id].second, joined += scored[id].first;
    EXPECT_EQ(joined, word);
    EXPECT_NEAR(sum, best.back(), 1e-9);
  }
}

TEST(Unigram, OfEqualPiecesTheLastCounts) {
  EXPECT_EQ(ids_of(options_of({{"<unk>", 0}, {"a", -1}, {"a", -9}, {"aa", -5}}), "aa"), Ids{3});
  EXPECT_EQ(ids_of(options_of({{"<unk>", 0}, {"a", -9}, {"a", -1}, {"aa", -5}}), "aa"), (Ids{2, 2}));
}

TEST(Unigram, RefusesVocabulariesByName) {
  EXPECT_NE(refusal_of(options_of({{"<unk>", 0}, {std::string(4097, 'a'), 0}})).find("4097 bytes"), std::string::npos);
  EXPECT_NE(refusal_of(options_of({{"<unk>", 0}, {"a", std::numeric_limits<double>::infinity()}}))
                .find("model.vocab[1]: the score is inf"),
            std::string::npos);
  auto options = options_of({{"<unk>", 0}});
  options.unk_id = 1;
  EXPECT_NE(refusal_of(options).find("model.unk_id is 1, the vocabulary has 1 pieces"), std::string::npos);
}

TEST(Unigram, TimeIsLinearInTheLengthTimesTheLongestPiece) {
  Scored scored{{"<unk>", 0}};
  for (size_t n = 1; n <= 64; ++n) scored.emplace_back(std::string(n, 'a'), -static_cast<double>(n));
  const UnigramEncoder encoder(options_of(scored));
  Ids ids;
  const std::clock_t start = std::clock();
  encoder.encode(std::string(1 << 20, 'a'), ids);
  EXPECT_GE(ids.size(), size_t{1} << 14);
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
}

TEST(PieceTrie, FindsEveryPieceThatBeginsAText) {
  const std::vector<std::string> pieces{"b", "", "ab", "a", "abcd", "\u00e9", "\xC3"};
  const PieceTrie trie(pieces);
  const auto found = [&](std::string_view text) {
    std::vector<std::pair<size_t, int32_t>> out;
    trie.find_prefixes(text, [&](size_t length, int32_t piece) { out.emplace_back(length, piece); });
    return out;
  };
  EXPECT_EQ(found("abcx"), (std::vector<std::pair<size_t, int32_t>>{{1, 3}, {2, 2}}));
  EXPECT_EQ(found("abcd"), (std::vector<std::pair<size_t, int32_t>>{{1, 3}, {2, 2}, {4, 4}}));
  EXPECT_EQ(found("\u00e9"), (std::vector<std::pair<size_t, int32_t>>{{1, 6}, {2, 5}}));
  EXPECT_TRUE(found("c").empty() && found("").empty());
  EXPECT_NO_THROW(PieceTrie({}).find_prefixes("a", [](size_t, int32_t) { FAIL(); }));
}

// The library reads these digits, divides by a power of ten, and so rounds twice.
TEST(LibraryNumber, RoundsAsTheLibraryDoes) {
  EXPECT_EQ(as_library_reads(-2.5), -2.5);
  EXPECT_EQ(as_library_reads(0), 0);
  EXPECT_EQ(as_library_reads(1e22), 1e22);
  EXPECT_EQ(as_library_reads(5e-324), 5e-324);
  EXPECT_EQ(as_library_reads(1.7976931348623157e308), 1.7976931348623157e308);
  EXPECT_EQ(as_library_reads(1.4189287982721446e-07), 14189287982721446.0 / 1e23);
  EXPECT_EQ(as_library_reads(-10.123456789012345), -10123456789012345.0 / 1e15);
}

std::vector<std::string> graphemes(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    out.emplace_back(text.substr(0, unicode::grapheme_length(text)));
    text.remove_prefix(out.back().size());
  }
  return out;
}

TEST(Graphemes, FollowTheRulesOfUnicode) {
  const auto parts = [](std::initializer_list<std::string> all) { return std::vector<std::string>(all); };
  const auto expect = [&](std::initializer_list<std::string> all) {
    EXPECT_EQ(graphemes(join(parts(all), "")), parts(all));
  };
  expect({"a", "b", " "});
  expect({"\r\n", "\n", "\r", "a"});
  expect({"e\u0301\u0323", "a"});
  expect({"\n", "\u0301"});
  expect({"\u1112\u1161\u11ab", "\u1112"});
  expect({"\U0001F1EB\U0001F1F7", "\U0001F1E9\U0001F1EA", "\U0001F1E9"});
  expect({"\U0001F469\u200d\U0001F469\u200d\U0001F466", "a\u200d", "\U0001F466"});
  expect({"\u0600a", "\u0915\u094d\u0915", "\u0915"});
  expect({"\u0915\u0903", "\u0915\u200c\u094d", "\u0915"});
}

/// Returns the normalizer with a trie of the units and texts.
Json charsmap_json(const std::vector<uint32_t>& units, const std::string& texts) {
  std::string bytes;
  const auto put = [&](uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i));
  };
  put(static_cast<uint32_t>(4 * units.size()));
  for (const uint32_t unit : units) put(unit);
  return {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(bytes + texts)}};
}

/// Returns the units of a trie with the single key "a". Its text begins at `value`. Node "a" is unit 1 ^ 'a'.
std::vector<uint32_t> trie_of_a(uint32_t value) {
  std::vector<uint32_t> units(512, 0);
  units[0] = 1u << 10;                                         // children of the root at 1 ^ label
  units[1 ^ 'a'] = ((1u ^ 'a') ^ 256u) << 10 | 1u << 8 | 'a';  // its value at 256
  units[256] = 1u << 31 | value;
  return units;
}

std::string mapped(const Json& json, std::string_view text) {
  try {
    return Charsmap(JsonView(json, "t")).apply(text).value_or("unchanged");
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Charsmap, ReplacesShortClustersByTheTextOfTheirShortestKey) {
  const auto json = charsmap_json(trie_of_a(3), std::string("xx\0long\0", 8));
  EXPECT_EQ(mapped(json, "bab"), "blongb");
  EXPECT_EQ(mapped(json, "a\u0301b"), "longb") << "the mark belongs to the cluster";
  EXPECT_EQ(mapped(json, "a\u0301\u0301\u0301"), "long\u0301\u0301\u0301") << "more than five bytes";
  EXPECT_EQ(mapped(json, "b"), "unchanged");
  EXPECT_EQ(mapped(json, ""), "unchanged");
}

TEST(Charsmap, ATableThatPointsOutsideOfItselfIsAnError) {
  const auto expect = [](const Json& json, const std::string& part) {
    EXPECT_NE(mapped(json, "xa").find(part), std::string::npos) << mapped(json, "xa");
  };
  expect(charsmap_json(trie_of_a(9), "ab"), "refers to the byte 9 of its texts of 2 bytes");
  expect(charsmap_json(trie_of_a(1), "\u00e9"), "refers to the byte 1 of its texts");
  expect(charsmap_json(trie_of_a(0), std::string(300, 'b')), "a text of more than 256 bytes");
  expect(charsmap_json({~0u << 10}, ""), "refers to its unit");
  expect(charsmap_json({}, ""), "says that its trie has 0 units");
  expect(Json{{"precompiled_charsmap", "AA=="}}, "has 1 bytes, expected a table");
  expect(Json{{"precompiled_charsmap", "no base64"}}, "is no Base64");
}

}  // namespace
}  // namespace evenkeel::tokenizer
