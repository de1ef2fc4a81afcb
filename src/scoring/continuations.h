/// \file  Computes the likelihood of given continuations of prompts. The same passes also find the first tokens of the
/// greedy continuation, if they are a prefix of a given one.
#pragma once

#include <span>
#include <vector>

#include "scoring/generation.h"

namespace evenkeel::scoring {

/// Computes the log-probability (natural log) of each of continuations[b] after prompt b. A common prefix of the
/// continuations of a prompt is computed once. Answers that differ only in the last token need no extra forward pass.
/// The prompts in `run` are not changed. Known tokens of the greedy continuation are stored in `run.known`, and
/// generate() continues after them.
/// Memory: KvShape::token_bytes() for every token of a continuation, except its last one and those of the common
/// prefix. REQUIRES PromptOptions::max_new_tokens >= the longest continuation.
/// \return [b][i], for continuations[b][i]
/// \throws kNumeric naming the first prompt with a log-probability that is not finite
std::vector<std::vector<double>> continuation_logprobs(const models::CausalLm& model,
                                                       const models::ForwardOptions& forward, PromptRun& run,
                                                       std::span<const std::vector<TokenIds>> continuations);

}  // namespace evenkeel::scoring
