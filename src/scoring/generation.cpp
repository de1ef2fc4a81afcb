#include "scoring/generation.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "base/random.h"
#include "models/memory_plan.h"
#include "scoring/beam_search.h"

namespace evenkeel {
namespace {

/// Rows of logits held at once when scoring: bounds memory to kLogitRows * V floats.
constexpr int64_t kLogitRows = 64;
/// Sequences whose caches are copied at once when continuations need passes of their own.
constexpr size_t kCopiedCaches = 32;

/// Packs `pieces[b]` to go behind `cached[b]` tokens of sequence b.
PackedBatch continue_batch(std::span<const TokenIds> pieces, std::span<const int64_t> cached) {
  TokenIds ids, positions;
  PackedBatch batch;
  batch.offsets.push_back(0);
  for (size_t b = 0; b < pieces.size(); ++b) {
    for (size_t i = 0; i < pieces[b].size(); ++i) positions.push_back(cached[b] + static_cast<int64_t>(i));
    ids.insert(ids.end(), pieces[b].begin(), pieces[b].end());
    batch.offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  batch.ids = at::tensor(ids, at::kLong);
  batch.positions = at::tensor(positions, at::kLong);
  batch.target_rows = batch.targets = at::empty({0}, at::kLong);
  return batch;
}

/// Runs `pieces[b]` behind what is cached of sequence b. \return hidden states of all pieces, end to end [T, D].
at::Tensor extend(const CausalLm& model, const ForwardOptions& forward, KvCache& cache,
                  std::span<const TokenIds> pieces) {
  ForwardOptions options = forward;
  options.cache = &cache;
  options.routing = nullptr;
  return model.hidden(continue_batch(pieces, cache.lengths), options);
}

at::Tensor select_rows(const at::Tensor& x_TD, const TokenIds& rows) {
  return x_TD.index_select(0, at::tensor(rows, at::kLong));
}

void check_prompts(const ModelSpec& spec, std::span<const TokenIds> prompts, int64_t room, const PromptNames& names) {
  for (size_t b = 0; b < prompts.size(); ++b) {
    const auto length = static_cast<int64_t>(prompts[b].size());
    EK_CHECK(length > 0, kData, names.of(b), " has no tokens");
    EK_CHECK(length + room <= spec.max_positions, kData, names.of(b), " has ", length, " tokens, with ", room,
             " new ones more than the model's ", spec.max_positions, " positions");
    for (const int64_t id : prompts[b])
      EK_CHECK(id >= 0 && id < spec.vocab_size, kData, names.of(b), " holds token id ", id, ", allowed: 0 .. ",
               spec.vocab_size - 1);
  }
}

/// \param prompt_of  the prompt that a row of logits belongs to
template <typename PromptOf>
at::Tensor finite_logits(at::Tensor logits_NV, const PromptNames& names, PromptOf prompt_of) {
  const auto finite_N = logits_NV.abs().amax(1).isfinite();  // NaN and infinity are the largest
  const bool* finite = finite_N.const_data_ptr<bool>();
  int64_t first = -1;
  for (int64_t row = 0; row < finite_N.numel(); ++row)
    if (!finite[row] && (first < 0 || prompt_of(row) < first)) first = prompt_of(row);
  EK_CHECK(first < 0, kNumeric, names.of(first), ": the model's logits are not finite");
  return logits_NV;
}

/// How many rows an evaluation runs together is known before, how long they are is not.
void check_room(const ModelSpec& spec, std::span<const int64_t> capacity) {
  const int64_t longest = capacity.empty() ? 0 : *std::max_element(capacity.begin(), capacity.end());
  const auto prompts = static_cast<int64_t>(capacity.size());
  require_memory({.parts = {{concat("caches of ", prompts, " prompts of up to ", longest, " tokens"),
                             cache_bytes(spec, prompts, longest), "the number of prompts run at once"}},
                  .mapped = 0},
                 machine::memory(), "generation");
}

std::vector<TokenIds> single_tokens(const TokenIds& tokens) {
  std::vector<TokenIds> pieces;
  for (const int64_t token : tokens) pieces.push_back({token});
  return pieces;
}

/// The largest logit of each row, ties to the lowest id.
TokenIds best_tokens(const at::Tensor& logits_BV) {
  const auto best = logits_BV.argmax(1);
  return {best.const_data_ptr<int64_t>(), best.const_data_ptr<int64_t>() + best.numel()};
}

/// The token behind each sequence: the likeliest, or one that is drawn.
class NextTokens {
 public:
  NextTokens(const std::optional<Sampling>& sampling, size_t prompts) : sampling_(sampling) {
    for (size_t b = 0; sampling && b < prompts; ++b) streams_.emplace_back(sampling->seed, "generate", b);
  }

  /// \param live  the prompt of each row
  TokenIds of(const at::Tensor& logits_BV, const TokenIds& live) {
    if (!sampling_) return best_tokens(logits_BV);
    const auto probabilities_BV = kept_probabilities(logits_BV, *sampling_);
    TokenIds drawn;
    for (size_t i = 0; i < live.size(); ++i)
      drawn.push_back(
          drawn_token(probabilities_BV[static_cast<int64_t>(i)], streams_[static_cast<size_t>(live[i])].uniform()));
    return drawn;
  }

 private:
  std::optional<Sampling> sampling_;
  std::vector<RandomStream> streams_;
};

/// What ends a sequence: eos first, then the rest.
TokenIds ends_of(const GenerationOptions& options, int64_t model_eos) {
  TokenIds ends = {options.eos >= 0 ? options.eos : model_eos};
  for (const int64_t id : options.stops)
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  return ends;
}

std::vector<TokenIds> one_by_one(const CausalLm& model, const ForwardOptions& forward, PromptRun run,
                                 const TokenIds& ends, const GenerationOptions& options) {
  std::vector<TokenIds> outputs(run.cache.lengths.size());
  NextTokens next(options.sampling, outputs.size());
  TokenIds live(outputs.size());
  std::iota(live.begin(), live.end(), 0);
  auto hidden_BD = run.last_BD;
  for (int64_t step = 1;; ++step) {
    const auto best = next.of(finite_logits(model.logits(hidden_BD, forward), run.names,
                                            [&](int64_t row) { return live[static_cast<size_t>(row)]; }),
                              live);
    TokenIds kept, tokens, still_live;
    for (size_t i = 0; i < live.size(); ++i) {
      if (std::find(ends.begin(), ends.end(), best[i]) != ends.end()) continue;
      outputs[live[i]].push_back(best[i]);
      kept.push_back(static_cast<int64_t>(i));
      tokens.push_back(best[i]);
      still_live.push_back(live[i]);
    }
    if (kept.empty() || step == options.max_new_tokens) return outputs;
    if (kept.size() < live.size()) run.cache.select(kept);
    live = std::move(still_live);
    hidden_BD = extend(model, forward, run.cache, single_tokens(tokens));
  }
}

std::vector<TokenIds> beam_search(const CausalLm& model, const ForwardOptions& forward, PromptRun run,
                                  const TokenIds& ends, const GenerationOptions& options) {
  const auto prompts = run.cache.lengths.size();
  std::vector<BeamSearch> searches(prompts, BeamSearch(options.beams, ends, options.max_new_tokens));
  std::vector<int64_t> rows(prompts, 1);  // running beams of each search, laid end to end in the cache
  const auto owner = [&](int64_t row) {
    int64_t b = 0;
    for (; row >= rows[static_cast<size_t>(b)]; ++b) row -= rows[static_cast<size_t>(b)];
    return b;
  };
  auto hidden_BD = run.last_BD;
  while (true) {
    const auto logits_BV =
        finite_logits(model.logits(hidden_BD, forward), run.names, [&](int64_t row) { return owner(row); });
    const auto logprobs_BV = at::log_softmax(logits_BV.to(at::kFloat), 1);
    TokenIds parents, tokens;
    int64_t first = 0;
    for (size_t b = 0; b < prompts; ++b) {
      if (rows[b] == 0) continue;
      const auto onward = searches[b].advance(logprobs_BV.narrow(0, first, rows[b]));
      for (const auto& beam : onward) {
        parents.push_back(first + beam.parent);
        tokens.push_back(beam.token);
      }
      first += std::exchange(rows[b], static_cast<int64_t>(onward.size()));
    }
    if (tokens.empty()) break;
    run.cache.select(parents);
    hidden_BD = extend(model, forward, run.cache, single_tokens(tokens));
  }
  std::vector<TokenIds> outputs;
  for (const auto& search : searches) outputs.push_back(search.best());
  return outputs;
}

TokenIds tail(const TokenIds& ids, size_t first) {
  return {ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end()};
}

TokenIds shared_prefix(std::span<const TokenIds> continuations) {
  if (continuations.empty()) return {};
  TokenIds shared = continuations.front();
  for (const auto& other : continuations) {
    const auto end = std::mismatch(shared.begin(), shared.end(), other.begin(), other.end()).first;
    shared.erase(end, shared.end());
  }
  return shared;
}

/// What the continuations of each prompt begin with. A sequence without new tokens cannot take part in a pass: when one
/// prompt shares nothing, none does.
std::vector<TokenIds> shared_prefixes(std::span<const std::vector<TokenIds>> continuations) {
  std::vector<TokenIds> shared;
  for (const auto& some : continuations) shared.push_back(shared_prefix(some));
  if (std::any_of(shared.begin(), shared.end(), [](const auto& ids) { return ids.empty(); }))
    shared.assign(continuations.size(), {});
  return shared;
}

/// A target whose log-probability under the hidden state in `row` is added to sum `owner`.
struct Query {
  int64_t row, target;
  double* owner;
};

/// Sums of continuations are finite exactly when every log-probability in them is.
void check_finite(std::span<const std::vector<double>> sums, const PromptNames& names) {
  for (size_t b = 0; b < sums.size(); ++b)
    for (const double sum : sums[b])
      EK_CHECK(std::isfinite(sum), kNumeric, names.of(b), ": the log-probability of an answer is not finite");
}

void add_logprobs(const CausalLm& model, const ForwardOptions& forward, const at::Tensor& hidden_ND,
                  std::vector<Query> queries) {
  std::stable_sort(queries.begin(), queries.end(), [](const Query& x, const Query& y) { return x.row < y.row; });
  for (auto begin = queries.begin(); begin != queries.end();) {
    const int64_t first = begin->row, rows = std::min(kLogitRows, hidden_ND.size(0) - first);
    const auto logprobs_NV =
        at::log_softmax(model.logits(hidden_ND.narrow(0, first, rows), forward).to(at::kDouble), 1);
    const auto* values = logprobs_NV.const_data_ptr<double>();
    for (; begin != queries.end() && begin->row < first + rows; ++begin)
      *begin->owner += values[(begin->row - first) * logprobs_NV.size(1) + begin->target];
  }
}

/// A continuation that goes on beyond its first token of its own.
struct Branch {
  int64_t prompt;
  TokenIds suffix;
  double* owner;
};

/// Scores suffix[1..] of every branch, the prompt and what it shares being cached.
void add_branches(const CausalLm& model, const ForwardOptions& forward, const KvCache& cache,
                  std::span<const Branch> branches) {
  for (size_t first = 0; first < branches.size(); first += kCopiedCaches) {
    const auto part = branches.subspan(first, std::min(kCopiedCaches, branches.size() - first));
    TokenIds sources;
    std::vector<TokenIds> pieces;
    std::vector<Query> queries;
    int64_t row = 0;
    for (const auto& branch : part) {
      sources.push_back(branch.prompt);
      pieces.emplace_back(branch.suffix.begin(), branch.suffix.end() - 1);
      for (size_t i = 1; i < branch.suffix.size(); ++i) queries.push_back({row++, branch.suffix[i], branch.owner});
    }
    KvCache copies = cache;  // shares memory; what is written behind `lengths` of the original is never read there
    copies.select(sources);
    add_logprobs(model, forward, extend(model, forward, copies, pieces), std::move(queries));
  }
}

}  // namespace

PromptRun run_prompts(const CausalLm& model, const ForwardOptions& forward, std::span<const TokenIds> prompts,
                      int64_t room, PromptNames names) {
  const at::NoGradGuard no_grad;
  const auto& spec = model.spec();
  check_prompts(spec, prompts, room, names);
  std::vector<int64_t> capacity;
  TokenIds last;
  for (const auto& prompt : prompts) {
    capacity.push_back(static_cast<int64_t>(prompt.size()) + room);
    last.push_back((last.empty() ? -1 : last.back()) + static_cast<int64_t>(prompt.size()));
  }
  check_room(spec, capacity);
  PromptRun run{KvCache::make(spec.num_layers, capacity, spec.num_kv_heads, spec.head_width), {}, std::move(names)};
  if (!prompts.empty()) run.last_BD = select_rows(extend(model, forward, run.cache, prompts), last);
  return run;
}

std::vector<TokenIds> generate(const CausalLm& model, const ForwardOptions& forward, PromptRun run,
                               const GenerationOptions& options) {
  limits::check_integer("max_new_tokens", options.max_new_tokens, 1, limits::kTokens);
  limits::check_integer("beams", options.beams, 1, limits::kBeams);
  if (run.cache.lengths.empty()) return {};
  const at::NoGradGuard no_grad;
  EK_CHECK(!options.sampling || options.beams == 1, kConfig, "beam search draws nothing: beams is ", options.beams,
           ", allowed with sampling: 1");
  if (options.sampling) options.sampling->check();
  const auto ends = ends_of(options, model.spec().eos);
  return options.beams == 1 ? one_by_one(model, forward, std::move(run), ends, options)
                            : beam_search(model, forward, std::move(run), ends, options);
}

std::vector<TokenIds> generate(const CausalLm& model, const ForwardOptions& forward, std::span<const TokenIds> prompts,
                               const GenerationOptions& options) {
  return generate(model, forward, run_prompts(model, forward, prompts, options.max_new_tokens), options);
}

std::vector<std::vector<double>> continuation_logprobs(const CausalLm& model, const ForwardOptions& forward,
                                                       PromptRun& run,
                                                       std::span<const std::vector<TokenIds>> continuations) {
  const at::NoGradGuard no_grad;
  const auto lengths = run.cache.lengths;
  const auto shared = shared_prefixes(continuations);
  auto states_ND = run.last_BD;
  if (!shared.empty() && !shared.front().empty())
    states_ND = at::cat({states_ND, extend(model, forward, run.cache, shared)});

  std::vector<std::vector<double>> sums(continuations.size());
  std::vector<Query> queries;
  std::vector<Branch> branches;
  auto behind = static_cast<int64_t>(continuations.size());  // row of the state behind shared[b][0]
  for (size_t b = 0; b < continuations.size(); ++b) {
    sums[b].assign(continuations[b].size(), 0.0);
    const size_t common = shared[b].size();
    for (size_t i = 0; i < continuations[b].size(); ++i) {
      const auto& ids = continuations[b][i];
      for (size_t t = 0; t < std::min(ids.size(), common + 1); ++t)
        queries.push_back({static_cast<int64_t>(t == 0 ? b : behind + t - 1), ids[t], &sums[b][i]});
      if (ids.size() > common + 1) branches.push_back({static_cast<int64_t>(b), tail(ids, common), &sums[b][i]});
    }
    behind += static_cast<int64_t>(common);
  }
  add_logprobs(model, forward, states_ND, std::move(queries));
  add_branches(model, forward, run.cache, branches);
  run.cache.lengths = lengths;
  check_finite(sums, run.names);
  return sums;
}

}  // namespace evenkeel
