/// \file  Continuing texts with a key/value cache: greedy, sampled or by beam search. Several prompts at once, packed:
/// the prompts in forward passes of some thousand tokens, then one token per sequence that is still going. What prompts
/// begin with alike runs once, and answers that were guessed are looked at in one pass (scoring/continuations.h).
/// Dimension names: B sequences, D hidden, V vocabulary.
///
/// Example:  auto run = run_prompts(model, forward, prompts, {.room = 32});
///           auto ranked = continuation_logprobs(model, forward, run, answers);   // generation may go on from them
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

namespace evenkeel {

using TokenIds = std::vector<int64_t>;

struct GenerationOptions {
  int64_t max_new_tokens = 32;
  int64_t beams = 1;                      ///< 1: greedy. More: beam search (scoring/beam_search.h)
  std::optional<TokenIds> eos{};          ///< ids each of which stops a sequence, none too; nothing: the model's
  std::vector<int64_t> stops{};           ///< ids that stop one as well (Prompts::stops)
  std::optional<Sampling> sampling = {};  ///< tokens are drawn instead of taken; with one beam only
  /// Whether a prompt's new tokens say all that is wanted of them: then it ends. With one beam only; empty: never.
  std::function<bool(size_t prompt, const TokenIds& tokens)> is_enough{};
};

/// What messages call the prompts: "prompt 0", "task boolq: row 32".
struct PromptNames {
  std::string kind = "prompt";
  int64_t first = 0;  ///< number of the first
  std::string of(int64_t index) const { return concat(kind, ' ', first + index); }
};

/// Tokens that one forward pass takes, about: whole sequences, one at least.
constexpr int64_t kPassTokens = 4096;

/// What prompts begin with, after its forward pass; of no tokens where they begin unalike.
struct PromptPrefix {
  TokenIds ids{};
  KvSequence cached{};
};

/// What all of `prompts` begin with, but for the last token of the shortest; nothing of less than two prompts.
TokenIds common_prefix(std::span<const TokenIds> prompts);
PromptPrefix run_prefix(const CausalLm& model, const ForwardOptions& forward, TokenIds ids, KvType type);

struct PromptOptions {
  int64_t room = 32;  ///< tokens that may follow each prompt
  PromptNames names{};
  KvType cache = KvType::kExact;
  const PromptPrefix* prefix = nullptr;  ///< borrowed for the call; what a prompt shares with it is not run again
};

/// What greedy decoding is known to begin with.
struct KnownBeginning {
  TokenIds tokens{};    ///< of the new text; empty: nothing is known
  KvSequence cached{};  ///< the prompt and all of `tokens` but the last
};

/// Prompts after their forward pass: what generation and scoring go on from.
struct PromptRun {
  KvCache cache;
  at::Tensor last_BD;  ///< hidden state behind each prompt's last token, float32
  PromptNames names{};
  std::vector<KnownBeginning> known{};  ///< of each prompt, or none at all (continuation_logprobs())
};

/// \throws kData naming the first prompt that is empty, or has with `room` new tokens more than the model's positions,
/// or holds an id that the model has not.
void check_prompts(const ModelSpec& spec, std::span<const TokenIds> prompts, int64_t room, const PromptNames& names);

/// Runs the prompts once. `forward.cache` and `forward.routing` are ignored here and below. Here and below, logits that
/// are not finite are an error: \throws kNumeric naming the first prompt that has them.
/// \param prompts  token ids, each non-empty and, with options.room, within the model's positions (\throws kData
/// otherwise). Memory: KvShape::token_bytes() for every token that is not in the prefix.
PromptRun run_prompts(const CausalLm& model, const ForwardOptions& forward, std::span<const TokenIds> prompts,
                      const PromptOptions& options);

/// New tokens of each prompt, eos and stops excluded. Deterministic: ties go to the lowest id, a drawn token depends
/// on the seed, its prompt's number and its place alone. REQUIRES PromptOptions::room >= max_new_tokens.
std::vector<TokenIds> generate(const CausalLm& model, const ForwardOptions& forward, PromptRun run,
                               const GenerationOptions& options);
std::vector<TokenIds> generate(const CausalLm& model, const ForwardOptions& forward, std::span<const TokenIds> prompts,
                               const GenerationOptions& options);

/// Runs `pieces[b]` behind what is cached of sequence b, which has room for it, in passes of about kPassTokens.
/// \param last_only  hidden states of the last token of each piece alone. \return [T, D], or [B, D]
at::Tensor extend(const CausalLm& model, const ForwardOptions& forward, KvCache& cache,
                  std::span<const TokenIds> pieces, bool last_only = false);

/// How a model's keys and values are cached.
KvShape kv_shape(const CausalLm& model, KvType type, const Compute& compute = {});

}  // namespace evenkeel
