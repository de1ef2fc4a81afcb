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
  at::Tensor logits;                   ///< [T, V] float32; undefined unless asked for
};

/// Scores `texts` in order and hands each over as soon as it is there. Texts are packed into batches of about
/// `batch_tokens` tokens, which bounds memory; logits, when asked for, are one text's at a time. REQUIRES every text is
/// non-empty, within the model's positions and vocabulary. \throws kNumeric naming the first text (0 = the first) whose
/// logits are not finite; those before it were handed over.
void score_texts(const CausalLm& model, const ForwardOptions& forward, std::span<const std::vector<int64_t>> texts,
                 bool with_logits, const std::function<void(size_t index, const TextScore&)>& on_score,
                 int64_t batch_tokens = 4096);

}  // namespace evenkeel
