#include "scoring/bert_score.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "scoring/bert_score_tables.h"

namespace evenkeel::scoring {
namespace {

constexpr size_t kEmptyTokens = 2;  // a text that has only special tokens

int64_t layer_of(const fs::path& folder, const BertScoreOptions& options) {
  if (options.layer >= 0) return options.layer;
  std::error_code error;
  // Does not resolve symbolic links, whose name is used.
  const auto path = fs::absolute(folder, error).lexically_normal();
  const auto name = (path.has_filename() ? path : path.parent_path()).filename().string();
  const auto layer = default_layer(name);
  EK_CHECK(layer, kConfig, "no layer is given, and \"", name, "\" is no encoder of the BERTScore table");
  return *layer;
}

bool is_empty(const TokenVectors& text) { return static_cast<size_t>(text.weights_T.size(0)) <= kEmptyTokens; }

double weighted_mean(const at::Tensor& similarity_T, const at::Tensor& weights_T) {
  const double sum = weights_T.sum().item<double>();
  return sum > 0 ? (similarity_T.to(at::kDouble) * weights_T).sum().item<double>() / sum : 0.0;
}

/// Returns the largest P, R and F of a candidate against two references.
BertScore largest(const BertScore& a, const BertScore& b) {
  return {.raw = {std::max(a.raw.precision, b.raw.precision), std::max(a.raw.recall, b.raw.recall),
                  std::max(a.raw.f1, b.raw.f1)},
          .rescaled = std::nullopt,
          .is_empty = a.is_empty,
          .is_cut = a.is_cut || b.is_cut};
}

}  // namespace

MatchScore match(const TokenVectors& candidate, const TokenVectors& reference) {
  if (is_empty(candidate) || is_empty(reference)) return {};
  const auto similarity_CR = at::mm(candidate.vectors_TD, reference.vectors_TD.t());
  const double precision = weighted_mean(similarity_CR.amax(1), candidate.weights_T);
  const double recall = weighted_mean(similarity_CR.amax(0), reference.weights_T);
  const double sum = precision + recall;
  return {precision, recall, sum == 0 ? 0.0 : 2 * precision * recall / sum};
}

MatchScore rescaled(const MatchScore& score, const MatchScore& baseline) {
  const auto one = [](double x, double b) { return (x - b) / (1 - b); };
  return {one(score.precision, baseline.precision), one(score.recall, baseline.recall), one(score.f1, baseline.f1)};
}

/// A candidate with one of its references.
struct BertScorer::Pair {
  size_t text;
  std::string_view candidate, reference;
  bool is_last;  // last pair of its text
};

/// The first pairs of a list, with each distinct text encoded once.
struct BertScorer::Batch {
  size_t pairs = 0;
  std::unordered_map<std::string_view, size_t> index;
  std::vector<std::vector<int64_t>> ids;
  std::vector<bool> cut;
  std::vector<TokenVectors> vectors;
  int64_t tokens = 0;

  void add(std::string_view text, const tokenizer::SentenceTokenizer& tokenizer) {
    if (!index.emplace(text, ids.size()).second) return;
    auto sentence = tokenizer.encode(text);
    ids.push_back(std::move(sentence.ids));
    cut.push_back(sentence.cut);
    tokens += static_cast<int64_t>(ids.back().size());
  }
  BertScore score(const Pair& pair) const {
    const size_t candidate = index.at(pair.candidate), reference = index.at(pair.reference);
    return {.raw = match(vectors[candidate], vectors[reference]),
            .rescaled = std::nullopt,
            .is_empty = ids[candidate].size() == kEmptyTokens,
            .is_cut = cut[candidate] || cut[reference]};
  }
};

BertScorer::BertScorer(models::TextEncoder encoder, tokenizer::SentenceTokenizer tokenizer,
                       const BertScoreOptions& options)
    : encoder_(std::move(encoder)), tokenizer_(std::move(tokenizer)), options_(options) {
  if (!options.baseline.empty()) baseline_ = load_baseline(options.baseline, encoder_.spec().layer);
}

BertScorer BertScorer::load(const fs::path& folder, const BertScoreOptions& options,
                            const models::BaseStorage& storage) {
  EK_CHECK(options.batch_tokens > 0, kConfig, "batch_tokens is ", options.batch_tokens, ", allowed: 1 or more");
  EK_CHECK(is_folder(folder), kCheckpoint, folder.string(), " is not a folder");
  auto encoder = models::TextEncoder::load(folder, layer_of(folder, options), storage);
  auto tokenizer = tokenizer::SentenceTokenizer::load(folder, encoder.spec().max_tokens);
  return {std::move(encoder), std::move(tokenizer), options};
}

BertScorer::TokenWeights BertScorer::plain_weights() const {
  return {{{tokenizer_.first(), 0.0}, {tokenizer_.last(), 0.0}}, 1.0};
}

// Returns log((N + 1) / (n + 1)) for a token that occurs in n of N references. Special tokens occur in all of them.
BertScorer::TokenWeights BertScorer::idf_weights(std::span<const ComparedText> texts) const {
  std::unordered_map<int64_t, double> holders;
  double references = 0;
  for (const auto& text : texts)
    for (const auto& reference : text.references) {
      const auto ids = tokenizer_.encode(reference).ids;
      for (const int64_t id : std::set<int64_t>(ids.begin(), ids.end())) ++holders[id];
      ++references;
    }
  TokenWeights weights{{}, std::log(references + 1)};
  for (const auto& [id, count] : holders) weights.known[id] = std::log((references + 1) / (count + 1));
  return weights;
}

std::vector<BertScorer::Pair> BertScorer::pairs_of(std::span<const ComparedText> texts) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < texts.size(); ++i) {
    EK_CHECK(!texts[i].references.empty(), kData, "text ", i, " has no reference");
    for (const auto& reference : texts[i].references) pairs.push_back({i, texts[i].candidate, reference, false});
    pairs.back().is_last = true;
  }
  return pairs;
}

BertScorer::Batch BertScorer::encode(std::span<const Pair> pairs, const TokenWeights& weights) const {
  Batch batch;
  for (; batch.pairs < pairs.size() && batch.tokens < options_.batch_tokens; ++batch.pairs) {
    batch.add(pairs[batch.pairs].candidate, tokenizer_);
    batch.add(pairs[batch.pairs].reference, tokenizer_);
  }
  auto unit_TD = encoder_.hidden(batch.ids);
  unit_TD.div_(unit_TD.norm(2, 1, true));
  unit_TD = unit_TD.cpu();  // matching two texts takes few operations and four numbers from each
  EK_CHECK(unit_TD.isfinite().all().item<bool>(), kNumeric, "BERTScore: the encoder's vectors are not finite");
  int64_t start = 0;
  for (const auto& ids : batch.ids) {
    std::vector<double> weight;
    for (const int64_t id : ids) weight.push_back(weights.of(id));
    const auto length = static_cast<int64_t>(ids.size());
    batch.vectors.push_back({unit_TD.narrow(0, start, length), at::tensor(weight, at::kDouble)});
    start += length;
  }
  return batch;
}

void BertScorer::score(std::span<const ComparedText> texts,
                       const std::function<void(size_t, const BertScore&)>& on_score) const {
  const at::NoGradGuard no_grad;
  const auto pairs = pairs_of(texts);
  const auto weights = options_.idf ? idf_weights(texts) : plain_weights();
  std::optional<BertScore> best;
  for (std::span<const Pair> remaining = pairs; !remaining.empty();) {
    const auto batch = encode(remaining, weights);
    for (const auto& pair : remaining.first(batch.pairs)) {
      best = best ? largest(*best, batch.score(pair)) : batch.score(pair);
      if (!pair.is_last) continue;
      if (baseline_) best->rescaled = rescaled(best->raw, *baseline_);
      on_score(pair.text, *std::exchange(best, std::nullopt));
    }
    remaining = remaining.subspan(batch.pairs);
  }
}

}  // namespace evenkeel::scoring
