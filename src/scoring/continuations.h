/// \file  Computes the likelihood of given continuations of prompts. The same passes also find the beginning of the
/// greedy continuation, if it is among the given ones.
#pragma once

#include <span>
#include <vector>

#include "scoring/generation.h"

namespace evenkeel {

/// Computes the log-probability (natural log) of each of continuations[b] after prompt b. Beginnings that continuations
/// of a prompt share are computed once, and answers that differ in the last token only need no extra forward pass.
/// The prompts in `run` are not changed. A beginning of the greedy continuation that was found is stored in
/// `run.known`, and generate() continues from it.
/// It needs KvShape::token_bytes() of memory for every token of a continuation that is not shared, except its last one.
/// REQUIRES PromptOptions::room >= the longest continuation.
std::vector<std::vector<double>> continuation_logprobs(const CausalLm& model, const ForwardOptions& forward,
                                                       PromptRun& run,
                                                       std::span<const std::vector<TokenIds>> continuations);

}  // namespace evenkeel
