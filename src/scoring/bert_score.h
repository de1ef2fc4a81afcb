/// \file  Computes BERTScore: the similarity of candidate texts to reference texts, by greedy matching of an encoder's
/// token vectors.
///   P = sum_i w_i max_j x_i . y_j  over candidate tokens x,  R = sum_j w_j max_i x_i . y_j  over reference tokens y,
///   F = 2 P R / (P + R).  Vectors have unit length; weights are divided by their sum in each text.
/// Source: Zhang et al. 2020. Results equal the bert_score package 0.3.13 except in two cases. A token whose
/// similarities are all negative keeps the largest one; in the package a padded 0 may be larger, depending on the
/// batch. A text without weighted tokens counts as 0; in the package it gives nan.
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

namespace evenkeel::scoring {

/// Encoded tokens of one text.
struct TokenVectors {
  at::Tensor vectors_TD;  ///< [T, D] on the CPU, unit length, including special tokens, which can be matched
  at::Tensor weights_T;   ///< [T], 0 or more; match() divides them by their sum; 0 for special tokens
};

/// Matches two texts. A text with at most two tokens has special tokens only and gives 0 everywhere. Time and memory
/// are O(C R).
MatchScore match(const TokenVectors& candidate, const TokenVectors& reference);

/// Returns (x - b) / (1 - b) for each of the three numbers with its own baseline b. Unrelated texts then score about 0.
MatchScore rescaled(const MatchScore& score, const MatchScore& baseline);

/// A candidate with its references. P, R and F are each the largest value over the references.
struct ComparedText {
  std::string candidate;
  std::vector<std::string> references;
};

/// Scores of one candidate.
struct BertScore {
  MatchScore raw;
  std::optional<MatchScore> rescaled;  ///< only with a baseline
  bool is_empty = false;               ///< true: the candidate is blank
  bool is_cut = false;                 ///< true: candidate or reference was too long for the encoder and was truncated
};

/// Options of BertScorer::load(). The texts of visit() explain the keys.
struct BertScoreOptions {
  int64_t layer = -1;      ///< encoder layer whose hidden states are compared; -1: default_layer() of the folder's name
  bool idf = false;        ///< weigh tokens by rarity in the references of the call; false: all weights are 1
  std::string baseline{};  ///< file for load_baseline(); empty: no rescaling
  int64_t batch_tokens = 4096;  ///< approximate number of tokens encoded at once; bounds memory

  void visit(auto& field) {
    field("layer", layer,
          "encoder layer whose hidden states are used, 0 or more; -1: the one that the package bert_score uses for a "
          "folder of that name");
    field("idf", idf, "weight tokens by their inverse document frequency in the references");
    field("baseline", baseline,
          "TSV file of the package bert_score to rescale scores with (rescale_baseline); empty: no rescaling");
  }
  void resolve(const config::Table& table) const { table.check_integer("layer", layer, -1, limits::kLayers); }
};

/// Scores texts with an encoder and its tokenizer.
class BertScorer {
 public:
  /// Loads an encoder folder.
  /// \param storage  type, engine and device of the encoder's weights
  /// \throws kConfig when options.layer is -1 and default_layer() does not know the folder's name; kCheckpoint or kData
  /// when the folder is invalid; as load_baseline()
  static BertScorer load(const std::filesystem::path& folder, const BertScoreOptions& options,
                         const models::BaseStorage& storage = {});

  const models::EncoderSpec& encoder() const { return encoder_.spec(); }
  int64_t max_tokens() const { return tokenizer_.max_tokens(); }

  /// Scores the texts in order and calls `on_score` for each as soon as it is scored.
  /// \throws kData naming a text without references, or for invalid UTF-8; kNumeric when the encoder's output is not
  /// finite
  void score(std::span<const ComparedText> texts,
             const std::function<void(size_t index, const BertScore& score)>& on_score) const;

 private:
  /// Weights by token id. `other` is the weight of all other ids.
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

  BertScorer(models::TextEncoder encoder, tokenizer::SentenceTokenizer tokenizer, const BertScoreOptions& options);
  TokenWeights plain_weights() const;
  TokenWeights idf_weights(std::span<const ComparedText> texts) const;
  static std::vector<Pair> pairs_of(std::span<const ComparedText> texts);
  Batch encode(std::span<const Pair> pairs, const TokenWeights& weights) const;

  models::TextEncoder encoder_;
  tokenizer::SentenceTokenizer tokenizer_;
  BertScoreOptions options_;
  std::optional<MatchScore> baseline_;
};

}  // namespace evenkeel::scoring
