#include "scoring/bert_score.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/testing.h"
#include "nn/testing.h"
#include "scoring/bert_score_tables.h"
#include "tokenizer/bpe.h"

namespace evenkeel::scoring {
namespace {

using testing::random_tensor;

TokenVectors vectors(const std::vector<std::vector<double>>& rows, const std::vector<double>& weights) {
  std::vector<at::Tensor> all;
  for (const auto& row : rows) all.push_back(at::tensor(row, at::kDouble));
  return {at::stack(all), at::tensor(weights, at::kDouble)};
}

void expect_score(const MatchScore& score, double precision, double recall, double f1) {
  EXPECT_NEAR(score.precision, precision, 1e-12);
  EXPECT_NEAR(score.recall, recall, 1e-12);
  EXPECT_NEAR(score.f1, f1, 1e-12);
}

// The first and last tokens are special: (0, 0, 1) and (0, 0, -1). Their weight is 0, but others may match them.
TEST(Match, HandComputedCase) {
  const auto candidate = vectors({{0, 0, 1}, {1, 0, 0}, {0.6, 0.8, 0}, {0, 0, -1}}, {0, 1, 1, 0});
  const auto reference = vectors({{0, 0, 1}, {0, 1, 0}, {-0.6, 0, 0.8}, {0, 0.6, 0.8}, {0, 0, -1}}, {0, 1, 1, 1, 0});
  // The best matches of the candidate's tokens are 0 (the first special token) and 0.8. Those of the reference's tokens
  // are 0.8, 0.8 and 0.8, the last two with the first special token.
  expect_score(match(candidate, reference), 0.4, 0.8, 2 * 0.4 * 0.8 / 1.2);
}

TEST(Match, WeightsAreRelativeToTheirSum) {
  const auto candidate = vectors({{0, 1}, {1, 0}, {0.6, 0.8}}, {0, 3, 1});
  const auto reference = vectors({{0.6, 0.8}, {0, 1}, {0.8, 0.6}}, {0, 10, 30});
  // P: (3 * 0.8 + 1 * 1) / 4; R: (10 * 1 + 30 * 0.96) / 40
  const double p = 3.4 / 4, r = 38.8 / 40;
  expect_score(match(candidate, reference), p, r, 2 * p * r / (p + r));
}

TEST(Match, EqualTextsScoreOneAndOrderDoesNotMatter) {
  auto x = testing::random_tensor({7, 5}, 1), w = testing::random_tensor({7}, 2).abs();
  x = x / x.norm(2, 1, true);
  expect_score(match({x, w}, {x, w}), 1, 1, 1);
  const auto order = at::tensor({4, 2, 0, 6, 1, 5, 3}, at::kLong);
  auto y = testing::random_tensor({4, 5}, 3);
  y = y / y.norm(2, 1, true);
  const TokenVectors other{y, at::ones({4}, at::kDouble)};
  const auto plain = match({x, w}, other), moved = match({x.index_select(0, order), w.index_select(0, order)}, other);
  expect_score(moved, plain.precision, plain.recall, plain.f1);
  const auto swapped = match(other, {x, w});
  expect_score(swapped, plain.recall, plain.precision, plain.f1);
}

TEST(Match, EmptyTextsAndTextsWithoutWeightScoreZero) {
  const auto two = vectors({{1, 0}, {0, 1}}, {0, 0}), three = vectors({{1, 0}, {0, 1}, {0.6, 0.8}}, {0, 1, 0});
  expect_score(match(two, three), 0, 0, 0);
  expect_score(match(three, two), 0, 0, 0);
  const auto weightless = vectors({{1, 0}, {0, 1}, {0.6, 0.8}}, {0, 0, 0});
  expect_score(match(weightless, three), 0, 1, 0);
}

TEST(Match, NegativeSimilaritiesStayNegative) {
  const auto a = vectors({{1, 0}, {1, 0}, {1, 0}}, {0, 1, 0}), b = vectors({{-1, 0}, {-1, 0}, {-1, 0}}, {0, 1, 0});
  expect_score(match(a, b), -1, -1, -1);
}

TEST(Rescaled, MapsTheBaselineToZeroAndOneToOne) {
  expect_score(rescaled({0.9, 0.5, 1.0}, {0.8, 0.8, 0.6}), 0.5, -1.5, 1.0);
}

TEST(DefaultLayer, IsFoundByTheNameWithOrWithoutItsOwner) {
  EXPECT_EQ(default_layer("roberta-large"), 17);
  EXPECT_EQ(default_layer("FacebookAI/roberta-large"), 17);
  EXPECT_EQ(default_layer("google/bert_uncased_L-2_H-128_A-2"), 1);
  EXPECT_EQ(default_layer("roberta"), std::nullopt);
  EXPECT_EQ(default_layer(""), std::nullopt);
}

constexpr int64_t kVocabulary = 261, kHidden = 12, kWidth = 20, kPositions = 18;  // 16 tokens: pad is 1

/// A folder with a random two-layer RoBERTa over bytes.
class Scorer : public ::testing::Test {
 protected:
  Scorer() {
    write_tokenizer();
    write_encoder();
  }

  void write_tokenizer() const {
    Json vocab{{"<s>", 0}, {"<pad>", 1}, {"</s>", 2}};
    for (int byte = 0; byte < 256; ++byte)
      vocab[tokenizer::token_of_bytes(std::string(1, static_cast<char>(byte)))] = byte + 4;
    const Json json{{"version", "1.0"},
                    {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                    {"post_processor", {{"type", "RobertaProcessing"}, {"cls", {"<s>", 0}}, {"sep", {"</s>", 2}}}},
                    {"decoder", {{"type", "ByteLevel"}}},
                    {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
    write_file_atomic(folder_ / "tokenizer.json", json.dump());
  }

  void write_encoder() const {
    const Json config{{"model_type", "roberta"},
                      {"vocab_size", kVocabulary},
                      {"hidden_size", kHidden},
                      {"intermediate_size", kWidth},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 3},
                      {"max_position_embeddings", kPositions},
                      {"pad_token_id", 1},
                      {"type_vocab_size", 1}};
    write_file_atomic(folder_ / "config.json", config.dump());
    TensorMap all;
    const auto put = [&](const std::string& name, std::vector<int64_t> sizes) {
      all[name] = testing::random_tensor(sizes, 70 + all.size(), at::kFloat) * 0.5;
    };
    const auto affine = [&](const std::string& name, std::vector<int64_t> sizes) {
      put(name + ".weight", sizes);
      put(name + ".bias", {sizes[0]});
    };
    put("embeddings.word_embeddings.weight", {kVocabulary, kHidden});
    put("embeddings.position_embeddings.weight", {kPositions, kHidden});
    put("embeddings.token_type_embeddings.weight", {1, kHidden});
    affine("embeddings.LayerNorm", {kHidden});
    for (const std::string layer : {"encoder.layer.0.", "encoder.layer.1."}) {
      for (const auto* name : {"self.query", "self.key", "self.value", "output.dense"})
        affine(layer + "attention." + name, {kHidden, kHidden});
      affine(layer + "attention.output.LayerNorm", {kHidden});
      affine(layer + "intermediate.dense", {kWidth, kHidden});
      affine(layer + "output.dense", {kHidden, kWidth});
      affine(layer + "output.LayerNorm", {kHidden});
    }
    save_safetensors(folder_ / "model.safetensors", all);
  }

  std::vector<BertScore> scores(const std::vector<ComparedText>& texts, BertScoreOptions options = {},
                                const models::BaseStorage& storage = {}) const {
    if (options.layer < 0) options.layer = 2;
    std::vector<BertScore> all;
    BertScorer::load(folder_, options, storage).score(texts, [&](size_t index, const BertScore& score) {
      EXPECT_EQ(index, all.size());
      all.push_back(score);
    });
    return all;
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

const std::vector<ComparedText> kTexts{{"the cat", {"a cat sat", "the dog"}},
                                       {"", {"nothing"}},
                                       {"same text", {"same text"}},
                                       {"much longer than sixteen bytes", {"the cat", "", "a cat sat"}},
                                       {"the cat", {" "}}};

TEST_F(Scorer, OneScorePerTextInOrder) {
  const auto all = scores(kTexts);
  ASSERT_EQ(all.size(), kTexts.size());
  EXPECT_NEAR(all[2].raw.f1, 1, 1e-6);
  EXPECT_TRUE(all[1].is_empty);
  expect_score(all[1].raw, 0, 0, 0);
  EXPECT_FALSE(all[4].is_empty);
  expect_score(all[4].raw, 0, 0, 0);
  EXPECT_TRUE(all[3].is_cut);
  EXPECT_FALSE(all[0].is_cut);
}

TEST_F(Scorer, ReturnsTheBestReferenceForEachMeasure) {
  const auto together = scores({kTexts[0]}).front().raw;
  const auto first = scores({{"the cat", {"a cat sat"}}}).front().raw,
             second = scores({{"the cat", {"the dog"}}}).front().raw;
  EXPECT_NEAR(together.precision, std::max(first.precision, second.precision), 1e-6);
  EXPECT_NEAR(together.recall, std::max(first.recall, second.recall), 1e-6);
  EXPECT_NEAR(together.f1, std::max(first.f1, second.f1), 1e-6);
}

TEST_F(Scorer, ScoresDoNotDependOnTheBatchSize) {
  const auto whole = scores(kTexts);
  for (const int64_t batch_tokens : {1, 20, 45}) {
    const auto parts = scores(kTexts, {.batch_tokens = batch_tokens});
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(parts[i].raw.precision, whole[i].raw.precision, 1e-6) << i << " of " << batch_tokens;
      EXPECT_NEAR(parts[i].raw.recall, whole[i].raw.recall, 1e-6) << i << " of " << batch_tokens;
      EXPECT_EQ(parts[i].is_cut, whole[i].is_cut);
    }
  }
}

TEST_F(Scorer, OperatorsOnTheTestDeviceGiveTheScoresOfTheKernels) {
  models::BaseStorage storage;
  storage.engine = nn::EngineKind::kAten;
  storage.device = testing::test_device();
  for (const auto dtype : {models::BaseDtype::kFloat64, models::BaseDtype::kFloat32}) {
    storage.dtype = dtype;
    const double tolerance = dtype == models::BaseDtype::kFloat64 ? 1e-11 : 1e-5;
    for (const int64_t batch_tokens : {20, 4096}) {
      const BertScoreOptions options{.idf = true, .batch_tokens = batch_tokens};
      const auto expected = scores(kTexts, options, dtype), there = scores(kTexts, options, storage);
      for (size_t i = 0; i < kTexts.size(); ++i) {
        EXPECT_NEAR(there[i].raw.precision, expected[i].raw.precision, tolerance) << i;
        EXPECT_NEAR(there[i].raw.recall, expected[i].raw.recall, tolerance) << i;
        EXPECT_NEAR(there[i].raw.f1, expected[i].raw.f1, tolerance) << i;
        EXPECT_EQ(there[i].is_cut, expected[i].is_cut);
      }
    }
  }
}

// The id of a byte is the byte plus 4, and every reference begins with a space. "ab" and "ac" differ in b and c only,
// so only b and c have weight, and equal weight.
TEST_F(Scorer, IdfWeighsTokensThatAreRareInTheReferences) {
  const auto idf = scores({{"ab", {"ab"}}, {"bbb", {"ac"}}}, {.idf = true});
  EXPECT_NEAR(idf[0].raw.f1, 1, 1e-6);
  const auto encoder = models::TextEncoder::load(folder_, 2);
  const std::vector<std::vector<int64_t>> ids{{0, 36, 102, 102, 102, 2}, {0, 36, 101, 103, 2}};
  auto unit = encoder.hidden(ids);
  unit = unit / unit.norm(2, 1, true);
  const auto similarity = at::mm(unit.slice(0, 0, 6), unit.slice(0, 6, 11).t());
  EXPECT_NEAR(idf[1].raw.precision, similarity.slice(0, 2, 5).amax(1).mean().item<double>(), 1e-6);
  EXPECT_NEAR(idf[1].raw.recall, similarity.select(1, 3).max().item<double>(), 1e-6);
}

TEST_F(Scorer, RescalesWithTheBaselineOfItsLayer) {
  const auto file = folder_ / "baseline.tsv";
  write_file_atomic(file, "LAYER,P,R,F\r\n0,0.1,0.2,0.3\r\n1,0.4,0.5,0.6\r\n2,0.7,0.8,-0.5\r\n");
  const auto plain = scores(kTexts), both = scores(kTexts, {.baseline = file});
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_FALSE(plain[i].rescaled);
    const auto& raw = plain[i].raw;
    ASSERT_TRUE(both[i].rescaled);
    EXPECT_NEAR(both[i].rescaled->precision, (raw.precision - 0.7) / 0.3, 1e-9);
    EXPECT_NEAR(both[i].rescaled->recall, (raw.recall - 0.8) / 0.2, 1e-9);
    EXPECT_NEAR(both[i].rescaled->f1, (raw.f1 + 0.5) / 1.5, 1e-9);
  }
}

TEST_F(Scorer, RejectsInvalidBaselinesWithTheirLine) {
  const auto file = folder_ / "baseline.tsv";
  const auto error = [&](std::string_view content) -> std::string {
    write_file_atomic(file, content);
    try {
      load_baseline(file, 2);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const auto expect = [](const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(error("LAYER\tP\tR\tF\n"), "expected \"LAYER,P,R,F\"");
  expect(error("LAYER,P,R,F\n0,0.1,0.2,0.3\n"), "no row for layer 2");
  expect(error("LAYER,P,R,F\n0,0.1,0.2,0.3\n2,0.1,x,0.3\n"), "line 3: \"x\" is not a number");
  expect(error("LAYER,P,R,F\n2,0.1,0.3\n"), "line 2: 3 fields");
  expect(error("LAYER,P,R,F\n2,0.1,1,0.3\n"), "allowed: below 1");
}

TEST_F(Scorer, RejectsATextWithoutReferencesAndAnUnknownName) {
  EXPECT_THROW(scores({{"a", {}}}), Error);
  try {
    BertScorer::load(folder_, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kConfig);
    EXPECT_NE(std::string_view(error.what()).find("is no encoder of the BERTScore table"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace evenkeel::scoring
