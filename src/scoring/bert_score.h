/// \file  BERTScore: how close candidate texts are to reference texts, by greedy matching of an encoder's token
/// vectors.
///   P = sum_i w_i max_j x_i . y_j  over candidate tokens x,  R = sum_j w_j max_i x_i . y_j  over reference tokens y,
///   F = 2 P R / (P + R);  vectors of unit length, weights that sum to 1 in each text.
/// Source: Zhang et al. 2020. Equal to the bert_score package 0.3.13 but for two accidents of its batches: a token
/// whose similarities are all negative keeps its largest one (there a padded 0 may win, depending on which texts share
/// a batch), and a side of which no token has weight counts 0 (there it is nan).
/// Dimension names: C and R tokens of candidate and reference, T tokens of a text, D hidden.
/// Example:  auto scorer = BertScorer::load("models/roberta-large", {});
///           scorer.score(pairs, [](size_t i, const BertScore& score) { ... });
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/text_encoder.h"
#include "scoring/match_score.h"
#include "tokenizer/sentence_tokenizer.h"

namespace evenkeel {

/// One text as the matching sees it.
struct TokenVectors {
  at::Tensor vectors_TD;  ///< [T, D] of unit length, special tokens included: they can be matched
  at::Tensor weights_T;   ///< [T] 0 or more, of any sum; 0 for special tokens
};

/// A text of two tokens is empty (special tokens alone): 0 all over. Time and memory O(C R).
MatchScore match(const TokenVectors& candidate, const TokenVectors& reference);

/// (x - b) / (1 - b), each by its own baseline: about 0 for unrelated texts.
MatchScore rescaled(const MatchScore& score, const MatchScore& baseline);

/// A candidate and what it is compared with: the largest P, R and F over the references count, each by itself.
struct ComparedText {
  std::string candidate;
  std::vector<std::string> references;
};

struct BertScore {
  MatchScore raw;
  std::optional<MatchScore> rescaled;  ///< when a baseline is given
  bool is_empty = false;               ///< the candidate is blank
  bool is_cut = false;                 ///< a text was longer than the encoder takes, and lost its end
};

struct BertScoreOptions {
  int64_t layer = -1;      ///< whose hidden states; -1: default_layer() of the folder's name
  bool idf = false;        ///< weigh tokens by rarity in the references of the call; otherwise all by 1
  std::string baseline{};  ///< a file for load_baseline(); empty: no rescaling
  BaseDtype dtype = BaseDtype::kCheckpoint;
  int64_t batch_tokens = 4096;  ///< tokens encoded at once, about: bounds memory whatever the number of texts

  void visit(auto& field) {
    field("layer", layer, "whose hidden states, 0 or more; -1: what the package takes for a folder of that name");
    field("idf", idf, "weigh words by their rarity in the references");
    field("baseline", baseline, "tsv file of the package's rescale_baseline: scores are rescaled; empty: they are not");
  }
  void resolve(const config::Table& table) const { table.check_integer("layer", layer, -1, limits::kLayers); }
};

class BertScorer {
 public:
  /// \throws kConfig when the layer is neither given nor known, kCheckpoint and kData for a bad folder or baseline.
  static BertScorer load(const std::filesystem::path& folder, const BertScoreOptions& options);

  const EncoderSpec& encoder() const { return encoder_.spec(); }
  int64_t max_tokens() const { return tokenizer_.max_tokens(); }

  /// Scores in order, each handed over as soon as it is there. \throws kData naming the text without references,
  /// kNumeric when the encoder overflows.
  void score(std::span<const ComparedText> texts,
             const std::function<void(size_t index, const BertScore& score)>& on_score) const;

 private:
  /// Weight of a token id.
  struct TokenWeights {
    std::unordered_map<int64_t, double> known;
    double other = 1.0;
    double of(int64_t id) const {
      const auto found = known.find(id);
      return found == known.end() ? other : found->second;
    }
  };
  struct Pair;
  struct Batch;

  BertScorer(TextEncoder encoder, SentenceTokenizer tokenizer, const BertScoreOptions& options);
  TokenWeights plain_weights() const;
  TokenWeights idf_weights(std::span<const ComparedText> texts) const;
  static std::vector<Pair> pairs_of(std::span<const ComparedText> texts);
  Batch encode(std::span<const Pair> pairs, const TokenWeights& weights) const;

  TextEncoder encoder_;
  SentenceTokenizer tokenizer_;
  BertScoreOptions options_;
  std::optional<MatchScore> baseline_;
};

}  // namespace evenkeel
