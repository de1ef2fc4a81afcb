#include "scoring/continuations.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/plain/error.h"
#include "base/system/transfers.h"
#include "nn/dense/logits_memory.h"

namespace evenkeel::scoring {
namespace {

/// Number of rows of logits in memory at once while scoring. On a GPU, where each step of a loop is a few launches,
/// there are more: as many as fit into kLogitsBytes with two copies of 64 bits.
constexpr int64_t kLogitRows = 64, kLogitBytes = 4 + 8 + 8;

int64_t logit_rows(const models::CausalLm& model) {
  if (model.device().is_cpu()) return kLogitRows;
  return std::max(kLogitRows, nn::kLogitsBytes / (kLogitBytes * model.spec().vocab_size));
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

/// Returns the common prefix of each prompt's continuations. Every sequence of a pass needs a new token. Therefore all
/// results are empty if one prompt has no common prefix.
std::vector<TokenIds> shared_prefixes(std::span<const std::vector<TokenIds>> continuations) {
  std::vector<TokenIds> shared;
  for (const auto& some : continuations) shared.push_back(shared_prefix(some));
  if (std::any_of(shared.begin(), shared.end(), [](const auto& ids) { return ids.empty(); }))
    shared.assign(continuations.size(), {});
  return shared;
}

/// A target: its log-probability under the hidden state in `row` is added to sum `owner`.
struct Query {
  int64_t row, target;
  double* owner;
};

/// Checks that all sums are finite. A sum is finite exactly if all of its terms are.
void check_finite(std::span<const std::vector<double>> sums, const PromptNames& names) {
  for (size_t b = 0; b < sums.size(); ++b)
    for (const double sum : sums[b])
      EK_CHECK(std::isfinite(sum), kNumeric, names.of(static_cast<int64_t>(b)),
               ": the log-probability of an answer is not finite");
}

/// Computes the log-probabilities of the queries.
/// \param logits_NV  logits of the rows from `first` on
/// \return [queries] float64, on the device
at::Tensor logprobs_of(const at::Tensor& logits_NV, int64_t first, std::span<const Query> queries) {
  std::vector<int64_t> indices;
  for (const auto& query : queries) indices.push_back((query.row - first) * logits_NV.size(1) + query.target);
  const auto logprobs_NV = at::log_softmax(logits_NV.to(at::kDouble), 1);
  return logprobs_NV.view({-1}).index_select(0, uploaded(indices, logprobs_NV.device()));
}

/// What is computed of some rows of logits.
struct RowsRead {
  int64_t first = 0;
  std::span<Query> queries{};
  Download values;  // the likeliest token of each row, the log-probability of each query
};

/// Adds the log-probabilities of the queries to their sums, and puts the likeliest tokens of their rows in their place.
void take(RowsRead& rows, TokenIds& likeliest) {
  const auto& values = rows.values.wait();
  const auto* best = values[0].const_data_ptr<int64_t>();
  const auto* value = values[1].const_data_ptr<double>();
  for (const auto& query : rows.queries) {
    *query.owner += *value++;
    likeliest[static_cast<size_t>(query.row)] = best[query.row - rows.first];
  }
}

/// Adds the log-probabilities of the queries to their sums.
/// \return the likeliest token after each queried row, ties to the lowest id; -1 for other rows
TokenIds add_logprobs(const models::CausalLm& model, const models::ForwardOptions& forward, const at::Tensor& hidden_ND,
                      std::vector<Query> queries) {
  TokenIds likeliest(static_cast<size_t>(hidden_ND.size(0)), -1);
  std::stable_sort(queries.begin(), queries.end(), [](const Query& x, const Query& y) { return x.row < y.row; });
  std::vector<RowsRead> all;
  const int64_t most = logit_rows(model);
  for (auto begin = queries.begin(); begin != queries.end();) {
    const int64_t first = begin->row, rows = std::min(most, hidden_ND.size(0) - first);
    const auto logits_NV = model.logits(hidden_ND.narrow(0, first, rows), forward);
    const auto end = std::find_if(begin, queries.end(), [&](const Query& query) { return query.row >= first + rows; });
    const std::span<Query> of_rows(begin, end);
    all.push_back({first, of_rows, Download({logits_NV.argmax(1), logprobs_of(logits_NV, first, of_rows)})});
    begin = end;
  }
  for (auto& rows : all) take(rows, likeliest);
  return likeliest;
}

/// A continuation with more than one token after the common prefix.
struct Branch {
  size_t prompt;
  TokenIds suffix;  // tokens after the common prefix
  double* owner;
};

/// The result of running the common prefixes after the prompts.
struct SharedPass {
  nn::KvCache cache;            ///< the prompts with their common prefixes
  std::vector<TokenIds> ids{};  ///< common prefix of each prompt
  TokenIds likeliest{};         ///< after each prompt, then after each token of `ids`, in the order of the prompts
};

/// Appends tokens of `guess` while they are the likeliest ones. The first token of the guess must be. \param likeliest
/// likeliest token after each token of the guess except the last; -1: not computed
void follow(const TokenIds& guess, std::span<const int64_t> likeliest, TokenIds& tokens) {
  for (size_t i = 0; i < likeliest.size() && tokens.back() == guess[i] && likeliest[i] >= 0; ++i)
    tokens.push_back(likeliest[i]);
}

/// Returns the known greedy tokens after the common prefixes have run. \param first_row  index in `likeliest` of the
/// first common token of prompt b
KnownBeginning known_from(const SharedPass& shared, const nn::KvCache& prompts, size_t b, size_t first_row) {
  KnownBeginning known;
  const int64_t first = shared.likeliest[b];
  if (first < 0) return known;
  known.tokens = {first};
  follow(shared.ids[b], std::span(shared.likeliest).subspan(first_row, shared.ids[b].size()), known.tokens);
  const auto cached = prompts.sequences[b].length() + static_cast<int64_t>(known.tokens.size()) - 1;
  known.cached = shared.cache.sequences[b].prefix(cached);
  return known;
}

/// Returns how many branches to run in one pass: about kPassTokens tokens, at least one branch.
size_t branches_per_pass(std::span<const Branch> branches, size_t first) {
  size_t end = first, tokens = 0;
  do tokens += branches[end++].suffix.size() - 1;
  while (end < branches.size() && tokens + branches[end].suffix.size() - 1 <= static_cast<size_t>(kPassTokens));
  return end - first;
}

/// Scores suffix[1..] of the branches, after the cached prompts and common prefixes, and extends the known greedy
/// tokens.
void add_branches(const models::CausalLm& model, const models::ForwardOptions& forward, const SharedPass& shared,
                  std::span<const Branch> branches, std::span<KnownBeginning> known) {
  nn::KvCache forks(shared.cache.shape());
  std::vector<TokenIds> pieces;
  std::vector<Query> queries;
  for (const auto& branch : branches) {
    pieces.emplace_back(branch.suffix.begin(), branch.suffix.end() - 1);
    forks.sequences.push_back(shared.cache.sequences[branch.prompt]);
    for (size_t i = 1; i < branch.suffix.size(); ++i)
      queries.push_back({static_cast<int64_t>(queries.size()), branch.suffix[i], branch.owner});
  }
  forks.open(lengths_of(pieces));
  const auto states_TD = extend(model, forward, forks, pieces);
  const auto likeliest = add_logprobs(model, forward, states_TD, std::move(queries));
  for (size_t i = 0, row = 0; i < branches.size(); row += pieces[i++].size()) {
    const auto& branch = branches[i];
    auto& best = known[branch.prompt];
    const size_t common = shared.ids[branch.prompt].size();
    if (best.tokens.size() <= common || best.tokens[common] != branch.suffix[0]) continue;
    TokenIds tokens(best.tokens.begin(), best.tokens.begin() + static_cast<std::ptrdiff_t>(common) + 1);
    auto known_tail = tail(tokens, common);
    follow(branch.suffix, std::span(likeliest).subspan(row, pieces[i].size()), known_tail);
    if (common + known_tail.size() <= best.tokens.size()) continue;
    tokens.insert(tokens.end(), known_tail.begin() + 1, known_tail.end());
    const auto cached = shared.cache.sequences[branch.prompt].length() + static_cast<int64_t>(known_tail.size()) - 1;
    best = {std::move(tokens), forks.sequences[i].prefix(cached)};
  }
}

/// Runs the common prefixes of the continuations. \return hidden states after the prompts, followed by those after each
/// common token
at::Tensor run_shared(const models::CausalLm& model, const models::ForwardOptions& forward, const PromptRun& run,
                      SharedPass& shared) {
  if (shared.ids.empty() || shared.ids.front().empty()) return run.last_BD;
  shared.cache.open(lengths_of(shared.ids));
  return at::cat({run.last_BD, extend(model, forward, shared.cache, shared.ids)});
}

}  // namespace

std::vector<std::vector<double>> continuation_logprobs(const models::CausalLm& model,
                                                       const models::ForwardOptions& forward, PromptRun& run,
                                                       std::span<const std::vector<TokenIds>> continuations) {
  const at::NoGradGuard no_grad;
  SharedPass shared{run.cache, shared_prefixes(continuations)};
  const auto states_ND = run_shared(model, forward, run, shared);

  std::vector<std::vector<double>> sums(continuations.size());
  std::vector<Query> queries;
  std::vector<Branch> branches;
  // For each prompt, the first row of the states after shared.ids[b]. The rows of the prompts themselves come first.
  std::vector<size_t> first_row = {continuations.size()};
  for (size_t b = 0; b < continuations.size(); ++b) {
    sums[b].assign(continuations[b].size(), 0.0);
    const size_t common = shared.ids[b].size();
    for (size_t i = 0; i < continuations[b].size(); ++i) {
      const auto& ids = continuations[b][i];
      for (size_t t = 0; t < std::min(ids.size(), common + 1); ++t)
        queries.push_back({static_cast<int64_t>(t == 0 ? b : first_row[b] + t - 1), ids[t], &sums[b][i]});
      if (ids.size() > common + 1) branches.push_back({b, tail(ids, common), &sums[b][i]});
    }
    first_row.push_back(first_row[b] + common);
  }
  shared.likeliest = add_logprobs(model, forward, states_ND, std::move(queries));
  run.known.clear();
  for (size_t b = 0; b < continuations.size(); ++b) run.known.push_back(known_from(shared, run.cache, b, first_row[b]));
  for (size_t first = 0, count = 0; first < branches.size(); first += count) {
    count = branches_per_pass(branches, first);
    add_branches(model, forward, shared, std::span(branches).subspan(first, count), run.known);
  }
  check_finite(sums, run.names);
  return sums;
}

}  // namespace evenkeel::scoring
