/// \file  Computes the likelihood of given continuations of prompts. The same passes also find the first tokens of the
/// greedy continuation, as far as it agrees with a given continuation. Indices: b prompts, i continuations of a prompt.
#pragma once

#include <span>
#include <vector>

#include "scoring/generation.h"

namespace evenkeel::scoring {

/// Computes the log-probability (natural log) of each of continuations[b] after prompt b. If the continuations of every
/// prompt have a common prefix, one pass computes these prefixes; otherwise no prefix is shared. Further passes compute
/// the remaining tokens, except the last token of each continuation. So different continuations of one token need no
/// forward pass, and continuations that differ in their last token only need one pass.
/// The prompts in `run` (scoring/generation.h) are not changed. The greedy tokens that are found are stored in
/// `run.known`, and generate() continues after them.
/// Memory: KvShape::token_bytes() for each token that a pass computes. REQUIRES that the PromptOptions of `run` had at
/// least the length of each prompt's longest continuation as its new tokens.
/// \return [b][i], for continuations[b][i]
/// \throws kNumeric naming the first prompt with a log-probability that is not finite
std::vector<std::vector<double>> continuation_logprobs(const models::CausalLm& model,
                                                       const models::ForwardOptions& forward, PromptRun& run,
                                                       std::span<const std::vector<TokenIds>> continuations);

}  // namespace evenkeel::scoring
