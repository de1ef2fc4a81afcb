/// \file  Log-probability of the answers of tokenised rows: what a training loss is the mean of, row by row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/example.h"
#include "models/causal_lm.h"

namespace evenkeel {

/// The targets of one row under a model.
struct AnswerLikelihood {
  double logprob = 0;  ///< summed over its targets, natural log
  int64_t tokens = 0;  ///< targets
};

/// How many of the first rows go through the model together: about `batch_tokens` tokens, one row at least. It bounds
/// memory and changes nothing.
size_t rows_together(std::span<const Example> rows, int64_t batch_tokens = 4096);

/// The likelihoods of rows that go through the model together. REQUIRES rows within the model's positions and
/// vocabulary. \param first  number of the first row, for errors. \throws kNumeric naming the first row whose logits
/// are not finite.
std::vector<AnswerLikelihood> answer_likelihoods(const CausalLm& model, const ForwardOptions& forward,
                                                 std::span<const Example> rows, size_t first = 0);

}  // namespace evenkeel
