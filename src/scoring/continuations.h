/// \file  Computes the likelihood of given continuations of prompts. The same passes also find the first tokens of the
/// greedy continuation, as far as they are those of a given one. Dimension names: b prompts, i continuations of a
/// prompt.
#pragma once

#include <span>
#include <vector>

#include "scoring/generation.h"

namespace evenkeel::scoring {

/// Computes the log-probability (natural log) of each of continuations[b] after prompt b. If every prompt's
/// continuations have a common prefix, one pass computes these prefixes, and further passes what follows, except last
/// tokens. If one prompt has none, no prefix is shared in the whole batch. So different continuations of one token need
/// no forward pass, and continuations that differ in their last token only need one.
/// The prompts in `run` (scoring/generation.h) are not changed. The greedy tokens that are found are stored in
/// `run.known`, and generate() continues after them.
/// Memory: KvShape::token_bytes() for each token that a pass computes. REQUIRES that `run` was made with
/// PromptOptions::max_new_tokens >= the longest continuation.
/// \return [b][i], for continuations[b][i]
/// \throws kNumeric naming the first prompt with a log-probability that is not finite
std::vector<std::vector<double>> continuation_logprobs(const models::CausalLm& model,
                                                       const models::ForwardOptions& forward, PromptRun& run,
                                                       std::span<const std::vector<TokenIds>> continuations);

}  // namespace evenkeel::scoring
