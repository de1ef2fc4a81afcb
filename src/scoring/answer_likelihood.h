/// \file  Log-probability of the answers of tokenised rows: what a training loss is the mean of, row by row.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "data/example.h"
#include "models/causal_lm.h"

namespace evenkeel {

/// The targets of one row under a model.
struct AnswerLikelihood {
  double logprob = 0;  ///< summed over its targets, natural log
  int64_t tokens = 0;  ///< targets
};

/// Hands over each row's likelihood, in order. Rows are packed into batches of about `batch_tokens` tokens, which
/// bounds memory and changes nothing. REQUIRES rows within the model's positions and vocabulary. \throws kNumeric
/// naming the first row (0 = the first) whose logits are not finite.
void answer_likelihoods(const CausalLm& model, const ForwardOptions& forward, std::span<const Example> rows,
                        const std::function<void(size_t index, const AnswerLikelihood&)>& on_row,
                        int64_t batch_tokens = 4096);

}  // namespace evenkeel
