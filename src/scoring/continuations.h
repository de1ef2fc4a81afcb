/// \file  The likelihood of given continuations of prompts, and what the same passes tell of greedy decoding: a guessed
/// answer whose every token is the likeliest one is what greedy decoding begins with.
#pragma once

#include <span>
#include <vector>

#include "scoring/generation.h"

namespace evenkeel {

/// Sum of log-probabilities (natural log) of each of continuations[b] behind prompt b. What the continuations of a
/// prompt share is run once, so answers that differ in their last token cost no forward pass of their own. Leaves the
/// prompts as they were; what greedy decoding is seen to begin with becomes `run.known`, which generate() goes on from.
/// Memory: KvShape::token_bytes() for every token of a continuation that more than its last token is its own.
/// REQUIRES PromptOptions::room >= the longest continuation.
std::vector<std::vector<double>> continuation_logprobs(const CausalLm& model, const ForwardOptions& forward,
                                                       PromptRun& run,
                                                       std::span<const std::vector<TokenIds>> continuations);

}  // namespace evenkeel
