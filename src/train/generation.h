/// \file  Continuing texts with a key/value cache: greedy or beam search, several prompts at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/causal_lm.h"

namespace evenkeel {

struct GenerationOptions {
  int64_t max_new_tokens = 32;
  int64_t beams = 1;       ///< 1: greedy. More: beam search as transformers' (length penalty 1, early_stopping false)
  int64_t eos = -1;        ///< stops a sequence; -1: the model's
};

/// New tokens of each prompt, eos excluded. Deterministic: ties go to the lowest id.
/// \param prompts  token ids, each non-empty and, with max_new_tokens, within the model's positions (\throws kData otherwise).
/// \param options.routing is ignored; options.cache must be null.
std::vector<std::vector<int64_t>> generate(const CausalLm& model, const ForwardOptions& forward,
                                           std::span<const std::vector<int64_t>> prompts,
                                           const GenerationOptions& options);

/// Sum of log-probabilities of `continuations[i]` after `prompt`, for each i, with the prompt run once. Natural log.
std::vector<double> continuation_logprobs(const CausalLm& model, const ForwardOptions& forward,
                                          std::span<const int64_t> prompt,
                                          std::span<const std::vector<int64_t>> continuations);

}  // namespace evenkeel
