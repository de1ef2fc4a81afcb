/// \file  Generates continuations of prompts with a key/value cache: greedily, by sampling or by beam search.
/// Several prompts run together. The prompts are packed into forward passes of about kPassTokens tokens. After them,
/// each pass adds one token to every sequence that has not ended. To compute a common prefix of the prompts once, call
/// common_prefix() and run_prefix(), and pass the result as PromptOptions::prefix. scoring/continuations.h ranks given
/// answers with the same cache.
/// Dimension names: B sequences, T tokens, D hidden, V vocabulary.
///
/// Example:  auto run = run_prompts(model, forward, prompts, {.max_new_tokens = 32});
///           auto ranked = continuation_logprobs(model, forward, run, answers);
///           // Reuses tokens that continuation_logprobs() found to be the greedy continuation (KnownBeginning).
///           auto texts = generate(model, forward, std::move(run), {.max_new_tokens = 32});
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/plain/error.h"
#include "models/causal_lm.h"
#include "scoring/token_sampling.h"

namespace evenkeel::scoring {

using TokenIds = std::vector<int64_t>;

/// Options of generate().
struct GenerationOptions {
  int64_t max_new_tokens = 32;
  int64_t beams = 1;              ///< 1: greedy or sampled; more: beam search of that width (scoring/beam_search.h)
  std::optional<TokenIds> eos{};  ///< token ids that end a sequence, possibly none; nullopt: the model's eos ids
  std::vector<int64_t> stops{};   ///< further token ids that end a sequence (Prompts::stops)
  /// Options of random sampling; nullopt: the likeliest token is taken. Needs beams = 1.
  std::optional<Sampling> sampling = {};
  /// Called with the index of a prompt in this call (from 0) and its new tokens so far; returning true ends the
  /// sequence. A beam search does not call it. Empty: never called.
  std::function<bool(size_t prompt, const TokenIds& tokens)> is_enough{};
};

/// Names prompts in error messages, as in "prompt 0" or "task boolq: row 32".
struct PromptNames {
  std::string kind = "prompt";
  std::vector<int64_t> numbers{};  ///< number that messages give to each prompt; empty: from 0
  std::string of(int64_t index) const {
    return concat(kind, ' ', numbers.empty() ? index : numbers.at(static_cast<size_t>(index)));
  }
};

/// Approximate number of tokens per forward pass. A pass has whole sequences, at least one.
constexpr int64_t kPassTokens = 4096;

/// Sizes of the prompts of a batch.
struct PromptSizes {
  int64_t count = 0, tokens = 0, longest = 0;  ///< prompts; tokens of all of them, and of the longest

  /// Adds a prompt of `length` tokens.
  void add(int64_t length);
};

/// Returns for how many tokens keys and values are held at once, at most, while prompts are run and continued. On the
/// CPU these are the prompts and what follows them, and with engine aten a copy that each step makes. On a GPU the
/// prompts' cache still exists when sequences are moved to their places (nn/attention/kv_cache.h), whose number and
/// size are rounded up; a beam search copies the cached tokens of all beams in each step. A common prefix counts for
/// each prompt.
/// \param new_tokens  largest number that follows a prompt \param beams  GenerationOptions::beams
int64_t cached_tokens(const PromptSizes& prompts, int64_t new_tokens, int64_t beams, c10::Device device,
                      nn::EngineKind engine);

/// Holds a common prefix of prompts and its cached keys and values. It has no tokens if there is no common prefix.
struct PromptPrefix {
  TokenIds ids{};
  nn::KvSequence cached{};
};

/// Returns the longest common prefix of `prompts`, without the last token of the shortest one. It is empty for fewer
/// than two prompts.
TokenIds common_prefix(std::span<const TokenIds> prompts);
/// Runs a prefix through the model and returns it with its keys and values.
PromptPrefix run_prefix(const models::CausalLm& model, const models::ForwardOptions& forward, TokenIds ids,
                        nn::KvType type);

/// Options of run_prompts().
struct PromptOptions {
  int64_t max_new_tokens = 32;        ///< largest number of tokens that will follow a prompt
  std::vector<int64_t> new_tokens{};  ///< the same number for each prompt; empty: max_new_tokens for all
  PromptNames names{};
  nn::KvType cache = nn::KvType::kExact;
  /// Cached common prefix, borrowed for the call; null: none. Prompts skip the tokens that they share with it.
  const PromptPrefix* prefix = nullptr;
};

/// Holds the first tokens that greedy decoding of a prompt is known to produce.
struct KnownBeginning {
  TokenIds tokens{};        ///< first new tokens; empty: unknown
  nn::KvSequence cached{};  ///< keys and values of the prompt and of all of `tokens` except the last
};

/// Holds prompts after their forward pass, as input of generate() and continuation_logprobs().
struct PromptRun {
  nn::KvCache cache;
  at::Tensor last_BD;  ///< hidden state of each prompt's last token, float32, or float64 if the base is float64
  PromptNames names{};
  std::vector<KnownBeginning> known{};  ///< one entry per prompt, or empty; continuation_logprobs() fills it
};

/// Checks that prompts can be run.
/// \param new_tokens  largest number of tokens that will follow each prompt
/// \throws kData naming the first prompt that is empty, whose length plus its `new_tokens` exceeds the model's number
/// of positions, or that has an id outside the vocabulary
void check_prompts(const models::ModelSpec& spec, std::span<const TokenIds> prompts,
                   std::span<const int64_t> new_tokens, const PromptNames& names);

/// Runs the prompts once and caches their keys and values. The cache needs KvShape::token_bytes() of memory for every
/// token outside the prefix and for the new tokens of each prompt. All functions of this file ignore
/// `forward.cache` and `forward.routing`.
/// \throws kData as check_prompts() with the new tokens of `options`; kConfig when the cache does not fit into memory
PromptRun run_prompts(const models::CausalLm& model, const models::ForwardOptions& forward,
                      std::span<const TokenIds> prompts, const PromptOptions& options);

/// Generates new tokens for each prompt. End and stop tokens are not returned. The result is deterministic: ties go to
/// the lowest id. A random draw depends only on the seed, the index of the prompt in this call (from 0, whatever
/// PromptNames::numbers are) and the position of the token. Calls with the same seed therefore repeat the same draws.
/// REQUIRES that the PromptOptions of the run had at least GenerationOptions::max_new_tokens for each prompt.
/// \throws kConfig when max_new_tokens, beams or sampling is out of range, for sampling with more than one beam, and
/// when the caches of all beams do not fit into memory; kNumeric naming the first prompt whose logits are not finite
std::vector<TokenIds> generate(const models::CausalLm& model, const models::ForwardOptions& forward, PromptRun run,
                               const GenerationOptions& options);
std::vector<TokenIds> generate(const models::CausalLm& model, const models::ForwardOptions& forward,
                               std::span<const TokenIds> prompts, const GenerationOptions& options);

/// Returns the number of tokens of each piece.
std::vector<int64_t> lengths_of(std::span<const TokenIds> pieces);
/// Runs `pieces[b]` as the continuation of cached sequence b, in passes of about kPassTokens tokens. REQUIRES at least
/// one piece, one piece for each sequence, no empty piece, and capacity for the pieces (KvCache::open()).
/// \param last_only  return the hidden state of each piece's last token only
/// \return [T, D], or [B, D] with last_only
at::Tensor extend(const models::CausalLm& model, const models::ForwardOptions& forward, nn::KvCache& cache,
                  std::span<const TokenIds> pieces, bool last_only = false);

/// Returns the shape and type of the model's cached keys and values. The type is float64 for a float64 model, bfloat16
/// for KvType::kBFloat16, and otherwise `compute.inner` (nn/compute/compute.h).
nn::KvShape kv_shape(const models::CausalLm& model, nn::KvType type, const nn::Compute& compute = {});

}  // namespace evenkeel::scoring
