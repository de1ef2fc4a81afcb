/// \file  Continuing texts with a key/value cache: greedy, sampled or by beam search, and the likelihood of given
/// continuations.
/// Several prompts at once, packed: the prompts in one forward pass, then one token per sequence that is still going.
/// Dimension names: B sequences, D hidden, V vocabulary.
///
/// Example:  auto run = run_prompts(model, forward, prompts, 32);
///           auto ranked = continuation_logprobs(model, forward, run, answers);   // the run is as before
///           auto texts = generate(model, forward, std::move(run), {.max_new_tokens = 32});
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/causal_lm.h"
#include "scoring/token_sampling.h"

namespace evenkeel {

using TokenIds = std::vector<int64_t>;

struct GenerationOptions {
  int64_t max_new_tokens = 32;
  int64_t beams = 1;                      ///< 1: greedy. More: beam search (scoring/beam_search.h)
  int64_t eos = -1;                       ///< stops a sequence; -1: the model's
  std::vector<int64_t> stops{};           ///< ids that stop one as well (Prompts::stops)
  std::optional<Sampling> sampling = {};  ///< tokens are drawn instead of taken; with one beam only
};

/// What messages call the prompts: "prompt 0", "task boolq: row 32".
struct PromptNames {
  std::string kind = "prompt";
  int64_t first = 0;  ///< number of the first
  std::string of(int64_t index) const { return concat(kind, ' ', first + index); }
};

/// Prompts after their forward pass: what generation and scoring go on from.
struct PromptRun {
  KvCache cache;
  at::Tensor last_BD;  ///< hidden state behind each prompt's last token, float32
  PromptNames names{};
};

/// Runs the prompts once. `forward.cache` and `forward.routing` are ignored here and below. Here and below, logits that
/// are not finite are an error: \throws kNumeric naming the first prompt that has them.
/// \param prompts  token ids, each non-empty and, with `room`, within the model's positions (\throws kData otherwise).
/// \param room     tokens that may follow each prompt. Memory: (prompt + room) * layers * 2 * kv width floats per
/// prompt.
PromptRun run_prompts(const CausalLm& model, const ForwardOptions& forward, std::span<const TokenIds> prompts,
                      int64_t room, PromptNames names = {});

/// New tokens of each prompt, eos and stops excluded. Deterministic: ties go to the lowest id, a drawn token depends
/// on the seed, its prompt's number and its place alone. REQUIRES room >= max_new_tokens.
std::vector<TokenIds> generate(const CausalLm& model, const ForwardOptions& forward, PromptRun run,
                               const GenerationOptions& options);
std::vector<TokenIds> generate(const CausalLm& model, const ForwardOptions& forward, std::span<const TokenIds> prompts,
                               const GenerationOptions& options);

/// Sum of log-probabilities (natural log) of each of continuations[b] behind prompt b. What the continuations of a
/// prompt share is run once, so answers that differ in their last token cost no forward pass of their own. Leaves `run`
/// as it was. REQUIRES room >= the longest continuation.
std::vector<std::vector<double>> continuation_logprobs(const CausalLm& model, const ForwardOptions& forward,
                                                       PromptRun& run,
                                                       std::span<const std::vector<TokenIds>> continuations);

}  // namespace evenkeel
