/// \file  Computes the log-probability of given texts, token by token. Dimension names: T tokens, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/causal_lm.h"

namespace evenkeel::scoring {

/// Log-probabilities of one text. The first token has none.
struct TextScore {
  double logprob = 0;                  ///< sum of token_logprobs, natural log
  std::vector<double> token_logprobs;  ///< [T - 1]
  std::vector<bool> greedy;            ///< [T - 1], whether each token was the likeliest; empty unless requested
  at::Tensor logits;                   ///< [T, V] float32 on the CPU; undefined unless requested
};

/// Selects further results of a text besides its log-probabilities.
struct ScoreOptions {
  bool logits = false;
  bool greedy = false;
  int64_t batch_tokens = 4096;  ///< approximate number of tokens per forward pass
};

/// Scores `texts` in order and calls `on_score` for each as soon as it is scored. Texts are packed into batches of
/// about `batch_tokens` tokens, which bounds memory. Logits are held for one text at a time. REQUIRES that every text
/// is non-empty and within the model's positions and vocabulary, and that `forward.cache` is null.
/// \throws kNumeric naming the first text (0 = the first) whose logits are not finite, after `on_score` was called for
/// the texts before it
void score_texts(const models::CausalLm& model, const models::ForwardOptions& forward,
                 std::span<const std::vector<int64_t>> texts, const ScoreOptions& options,
                 const std::function<void(size_t index, const TextScore&)>& on_score);

}  // namespace evenkeel::scoring
