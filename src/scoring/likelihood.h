/// \file  Log-probability of given texts, token by token. Dimension names: T tokens, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/causal_lm.h"

namespace evenkeel {

/// One text under a model. The first token has no log-probability.
struct TextScore {
  double logprob = 0;                  ///< sum of token_logprobs, natural log
  std::vector<double> token_logprobs;  ///< [T - 1]
  std::vector<bool> greedy;            ///< [T - 1], whether each was the likeliest token; empty unless asked for
  at::Tensor logits;                   ///< [T, V] float32; undefined unless asked for
};

/// What else is wanted of a text, beside its log-probabilities.
struct ScoreOptions {
  bool logits = false;
  bool greedy = false;
  int64_t batch_tokens = 4096;  ///< texts run together up to so many
};

/// Scores `texts` in order and hands each over as soon as it is there. Texts are packed into batches of about
/// `batch_tokens` tokens, which bounds memory; logits, when needed, are one text's at a time. REQUIRES every text is
/// non-empty, within the model's positions and vocabulary. \throws kNumeric naming the first text (0 = the first) whose
/// logits are not finite; those before it were handed over.
void score_texts(const CausalLm& model, const ForwardOptions& forward, std::span<const std::vector<int64_t>> texts,
                 const ScoreOptions& options, const std::function<void(size_t index, const TextScore&)>& on_score);

}  // namespace evenkeel
