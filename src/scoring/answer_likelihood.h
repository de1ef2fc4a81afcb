/// \file  Computes the log-probability of the answer of each tokenised row. The training loss is the negative mean of
/// the log-probability per token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/example.h"
#include "models/causal_lm.h"

namespace evenkeel::scoring {

/// Log-probability of the targets of one row.
struct AnswerLikelihood {
  double logprob = 0;  ///< sum over the targets, natural log
  int64_t tokens = 0;  ///< number of targets
};

/// Returns how many of the first rows should run in one pass: about `batch_tokens` tokens, at least one row. The choice
/// bounds memory and does not affect results. REQUIRES at least one row.
size_t rows_together(std::span<const data::Example> rows, int64_t batch_tokens = 4096);

/// Computes the likelihoods of rows in one forward pass. REQUIRES that rows are within the model's positions and
/// vocabulary.
/// \param numbers  number of each row, for errors
/// \throws kNumeric naming the first row whose logits are not finite
std::vector<AnswerLikelihood> answer_likelihoods(const models::CausalLm& model, const models::ForwardOptions& forward,
                                                 std::span<const data::Example> rows, std::span<const int64_t> numbers);

}  // namespace evenkeel::scoring
