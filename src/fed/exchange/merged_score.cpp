#include "fed/exchange/merged_score.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "fed/exchange/plausible_score.h"
#include "fed/exchange/reported_numbers.h"
#include "scoring/measures.h"

namespace evenkeel::fed {
namespace {

using Parts = std::span<const Scored>;
using Value = std::function<double(const scoring::TaskScore&)>;

double share_of(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

/// Returns the number of rows that a share stands for.
int64_t count_of(double share, int64_t rows) { return std::llround(share * static_cast<double>(rows)); }

template <typename Of>
int64_t sum_of(Parts parts, const Of& of) {
  int64_t sum = 0;
  for (const auto& part : parts) sum += of(part.score);
  return sum;
}

/// Returns a share over the rows of all parts.
double share_over_rows(Parts parts, const Value& share) {
  const auto rows = sum_of(parts, [](const scoring::TaskScore& score) { return score.rows; });
  return share_of(sum_of(parts, [&](const scoring::TaskScore& score) { return count_of(share(score), score.rows); }),
                  rows);
}

/// Returns a mean over the rows of all parts.
double mean_over_rows(Parts parts, const Value& mean) {
  double sum = 0, rows = 0;
  for (const auto& part : parts) {
    sum += mean(part.score) * static_cast<double>(part.score.rows);
    rows += static_cast<double>(part.score.rows);
  }
  return sum / rows;
}

/// Returns the share of correct answers among rows whose output has an allowed answer.
double accuracy_of_readable(Parts parts, const Value& share) {
  const auto valid = [](const scoring::TaskScore& score) {
    return score.rows - count_of(score.invalid_rate, score.rows);
  };
  const auto correct = [&](const scoring::TaskScore& score) { return count_of(share(score), valid(score)); };
  return share_of(sum_of(parts, correct), sum_of(parts, valid));
}

/// Returns the number of rows that have a likelihood; nothing if likelihoods were not asked for.
std::optional<int64_t> all_likelihood_rows(Parts parts) {
  int64_t rows = 0;
  for (const auto& part : parts) {
    if (!part.score.likelihood_rows) return std::nullopt;
    rows += *part.score.likelihood_rows;
  }
  return rows;
}

/// Returns the mean over the rows that have a likelihood; nothing if there is none.
std::optional<double> mean_of_likelihoods(Parts parts) {
  const auto rows = all_likelihood_rows(parts);
  if (rows.value_or(0) == 0) return std::nullopt;
  double sum = 0;
  for (const auto& part : parts)
    sum += part.score.log_likelihood.value_or(0) * static_cast<double>(*part.score.likelihood_rows);
  return sum / static_cast<double>(*rows);
}

/// Returns a mean over the answer tokens of all parts.
double mean_over_tokens(Parts parts, const Value& value) {
  double sum = 0, tokens = 0;
  for (const auto& part : parts) {
    sum += value(part.score) * static_cast<double>(part.score.answer_tokens);
    tokens += static_cast<double>(part.score.answer_tokens);
  }
  return sum / tokens;
}

/// Returns a measure of the rows of all parts. \param all  the score with the measures before it in the list
std::optional<double> merged_value(const scoring::Measure& measure, Parts parts, const scoring::TaskScore& all) {
  const auto value = [&](const scoring::TaskScore& score) { return measure.of(score).value_or(0); };
  switch (measure.merging) {
    case scoring::MeasureMerging::kCountOfRows:
      return share_over_rows(parts, value);
    case scoring::MeasureMerging::kMeanOfRows:
      return mean_over_rows(parts, value);
    case scoring::MeasureMerging::kCountOfReadable:
      return accuracy_of_readable(parts, value);
    case scoring::MeasureMerging::kMeanOfLikelihoods:
      return mean_of_likelihoods(parts);
    case scoring::MeasureMerging::kMeanOfTokens:
      return mean_over_tokens(parts, value);
    case scoring::MeasureMerging::kExponentialOfNll:
      return std::exp(all.nll);
    case scoring::MeasureMerging::kNone:
      break;
  }
  return std::nullopt;
}

void merge_measures(Parts parts, scoring::TaskScore& all) {
  all.likelihood_rows = all_likelihood_rows(parts);
  for (const auto& measure : scoring::measures())
    if (!measure.kind || measure.kind == all.kind) measure.set(all, merged_value(measure, parts, all));
}

/// Merges what a score holds beside its measures.
void merge_counts(Parts parts, scoring::TaskScore& all) {
  using Score = scoring::TaskScore;
  all.accuracy_cased = share_over_rows(parts, [](const Score& score) { return score.accuracy_cased; });
  all.accuracy_lowercase = share_over_rows(parts, [](const Score& score) { return score.accuracy_lowercase; });
  all.chance = mean_over_rows(parts, [](const Score& score) { return score.chance; });
  all.majority = share_over_rows(parts, [](const Score& score) { return score.majority; });
  all.context_cut = sum_of(parts, [](const Score& score) { return score.context_cut; });
  all.answer_tokens = sum_of(parts, [](const Score& score) { return score.answer_tokens; });
  all.cut = sum_of(parts, [](const Score& score) { return score.cut; });
}

void append(const auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); }

/// Concatenates the scores of single rows; nothing if a part lacks them.
std::optional<scoring::ItemScores> items(Parts parts) {
  scoring::ItemScores all;
  for (const auto& part : parts) {
    if (!part.items) return std::nullopt;
    append(part.items->log_likelihood, all.log_likelihood);
    append(part.items->correct, all.correct);
    append(part.items->f1, all.f1);
  }
  return all;
}

/// Returns true if all values are scores of a single row: 0 or more, up to 1.
bool are_shares(const auto& values) {
  return std::all_of(values.begin(), values.end(), [](auto value) { return value >= 0 && value <= 1; });
}

void check_items(const scoring::ItemScores& items, const scoring::TaskScore& score) {
  for (const size_t size : {items.log_likelihood.size(), items.correct.size(), items.f1.size()})
    EK_CHECK(size <= static_cast<size_t>(score.rows), kData, "scores of ", size, " single rows, asked: ", score.rows);
  EK_CHECK(!score.likelihood_rows || std::ssize(items.log_likelihood) == *score.likelihood_rows, kData,
           "log-likelihoods of ", items.log_likelihood.size(), " single rows, their mean is of ",
           score.likelihood_rows.value_or(0));
  const auto& likelihoods = items.log_likelihood;
  EK_CHECK(std::all_of(likelihoods.begin(), likelihoods.end(), is_measure), kData, "a log-likelihood of a row beyond ",
           kMostMeasure);
  EK_CHECK(are_shares(items.correct) && are_shares(items.f1), kData, "a score of a row that is not in 0 to 1");
}

void check_log_likelihood(const scoring::TaskScore& score) {
  const double mean = score.log_likelihood.value_or(0);
  EK_CHECK(is_measure(mean), kData, "a log-likelihood of ", mean, ", allowed: magnitudes up to ", kMostMeasure);
  const int64_t rows = score.likelihood_rows.value_or(0);
  EK_CHECK(rows <= score.rows, kData, "a log-likelihood of ", rows, " rows in ", score.rows);
  EK_CHECK((rows > 0) == score.log_likelihood.has_value(), kData, "a score of ", rows, " rows with a likelihood ",
           score.log_likelihood ? "has" : "lacks", " their mean");
}

/// Checks the measures of a likelihood score. Those of other kinds have the default 0.
void check_perplexity(const scoring::TaskScore& score) {
  EK_CHECK(std::abs(score.nll) <= kMostNll, kData, "a negative log-likelihood of ", score.nll,
           " per token, allowed: magnitudes up to ", kMostNll);
  if (score.kind != scoring::AnswerKind::kLikelihood) return;
  constexpr double kRounding = 1e-6;
  EK_CHECK(std::abs(score.perplexity / std::exp(score.nll) - 1) <= kRounding, kData, "a perplexity of ",
           score.perplexity, " beside a negative log-likelihood of ", score.nll);
  EK_CHECK(score.answer_tokens >= 1 && score.answer_tokens <= kMostAnswerTokens, kData, "a likelihood of ",
           score.answer_tokens, " tokens, allowed: 1 to ", kMostAnswerTokens);
}

/// Checks the numbers of rows, which are at most the score's, and what only the server adds to a score.
void check_rows(const scoring::TaskScore& score) {
  for (const int64_t part : {score.questions, score.context_cut, score.cut})
    EK_CHECK(part <= score.rows, kData, "a score counts ", part, " questions or cut rows in ", score.rows, " rows");
  EK_CHECK(score.missing_clients.empty() && score.without_scores.empty() && !score.bert_score, kData,
           "a score names missing clients or holds a BERTScore, which a client does not compute");
}

void require_alike(const scoring::TaskScore& one, const scoring::TaskScore& other) {
  EK_CHECK(one.task == other.task && one.kind == other.kind && one.budget == other.budget &&
               one.rank_eval_mode == other.rank_eval_mode && one.served_by == other.served_by,
           kData, "scores of ", one.task, " at budget ", one.budget, " and of ", other.task, " at budget ",
           other.budget, " are not of the same task and point");
}

void check_share(double share, std::string_view what) {
  constexpr double kRounding = 1e-9;  // a mean of nine ones is above 1
  EK_CHECK(share >= 0 && share <= 1 + kRounding, kData, "a score has ", what, " ", share, ", allowed: 0 to 1");
}

void check_point(const scoring::TaskScore& score, const Task& asked, scoring::AnswerKind kind) {
  const auto& ask = std::get<Score>(asked.ask);
  const auto& client = asked.client;
  EK_CHECK(score.task == ask.task && score.kind == kind, kData, "a score of task ", shown(score.task),
           ", asked: ", ask.task);
  EK_CHECK(score.budget == client.budget && score.top_k <= client.top_k &&
               score.top_k >= std::min<int64_t>(1, client.top_k) && score.rank_eval_mode == ask.rank_eval_mode &&
               score.served_by == ask.served_by,
           kData, "a score at budget ", score.budget, ", K = ", score.top_k, ", rank evaluation mode \"",
           shown(score.rank_eval_mode), "\", asked: ", client.budget, ", up to K = ", client.top_k, ", \"",
           ask.rank_eval_mode, '"');
}

}  // namespace

void check_score(const Scored& scored, const Task& asked, scoring::AnswerKind kind, int64_t rows) {
  const auto& score = scored.score;
  check_point(score, asked, kind);
  EK_CHECK(score.rows == rows, kData, "a score of ", score.rows, " rows, asked: ", rows);
  check_rows(score);
  for (const auto& measure : scoring::measures())
    if (measure.is_share) check_share(measure.of(score).value_or(0), measure.name);
  for (const double share :
       {score.accuracy_cased, score.accuracy_lowercase, score.accuracy_valid, score.accuracy_likelihood, score.chance,
        score.majority, score.exact_match, score.f1, score.empty_rate})
    check_share(share, "a share of rows");
  EK_CHECK(is_duration(score.seconds), kData, "a score that took ", score.seconds, " s, allowed: 0, or ", kLeastSeconds,
           " to ", kMostSeconds);
  check_perplexity(score);
  check_log_likelihood(score);
  if (scored.items) check_items(*scored.items, score);
  EK_CHECK(scored.predictions.empty() || std::get<Score>(asked.ask).predictions, kData, "answers to ",
           scored.predictions.size(), " rows, which were not asked for");
  check_plausible(scored);
}

Scored merged(Parts parts) {
  EK_CHECK(!parts.empty(), kInternal, "no scores to merge");
  for (const auto& part : parts) require_alike(parts.front().score, part.score);
  scoring::TaskScore all = parts.front().score;
  all.rows = sum_of(parts, [](const scoring::TaskScore& score) { return score.rows; });
  all.questions = sum_of(parts, [](const scoring::TaskScore& score) { return score.questions; });
  for (const auto& part : parts) all.top_k = std::max(all.top_k, part.score.top_k);
  all.seconds = 0;
  for (const auto& part : parts) all.seconds += part.score.seconds;
  merge_counts(parts, all);
  merge_measures(parts, all);
  return {.score = std::move(all), .predictions = {}, .items = items(parts)};
}

}  // namespace evenkeel::fed
