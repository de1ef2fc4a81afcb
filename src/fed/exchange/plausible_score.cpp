#include "fed/exchange/plausible_score.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "fed/exchange/reported_numbers.h"
#include "scoring/measures.h"

namespace evenkeel::fed {
namespace {

constexpr double kShareRounding = 1e-6;       // of a number of rows that a share stands for
constexpr double kLikelihoodRounding = 1e-5;  // nats, of a sum of log-probabilities
constexpr double kItemRounding = 1e-6;        // nats, to which log-likelihoods of single rows are rounded

double in_rows(double share, int64_t rows) { return share * static_cast<double>(rows); }

bool is_whole(double count) { return std::abs(count - std::round(count)) <= kShareRounding * std::max(1.0, count); }

bool is_near(double one, double other, double rounding) {
  return std::abs(one - other) <= rounding * std::max({1.0, std::abs(one), std::abs(other)});
}

/// Checks that shares are those of whole rows.
void check_whole_rows(const scoring::TaskScore& score) {
  for (const auto& measure : scoring::measures()) {
    using enum scoring::MeasureMerging;
    if (!measure.is_share || measure.merging != kCountOfRows) continue;
    const double share = measure.of(score).value_or(0);
    EK_CHECK(is_whole(in_rows(share, score.rows)), kData, "a score has ", measure.name, ' ', share, " of ", score.rows,
             " rows, which is no whole number of them");
  }
}

/// Checks that the accuracies of a score of choices agree with each other.
void check_accuracies(const scoring::TaskScore& score) {
  if (score.kind != scoring::AnswerKind::kChoice) return;
  const bool known = score.accuracy == score.accuracy_cased || score.accuracy == score.accuracy_lowercase;
  EK_CHECK(known, kData, "a score has accuracy ", score.accuracy, ", of unchanged output ", score.accuracy_cased,
           ", of lower-cased output ", score.accuracy_lowercase, ": it is one of the two");
  for (const double share : {score.accuracy_cased, score.accuracy_lowercase, score.majority})
    EK_CHECK(is_whole(in_rows(share, score.rows)), kData, "a score has an accuracy or majority ", share, " of ",
             score.rows, " rows, which is no whole number of them");
  const double correct = in_rows(score.accuracy, score.rows);
  const double readable = in_rows(1 - score.invalid_rate, score.rows);
  EK_CHECK(correct <= readable + kShareRounding * static_cast<double>(score.rows), kData, "a score has accuracy ",
           score.accuracy, " where a share of ", score.invalid_rate, " of the answers cannot be read");
  EK_CHECK(is_near(score.accuracy_valid * readable, correct, kShareRounding), kData, "a score has accuracy_valid ",
           score.accuracy_valid, ", of ", readable, " readable answers ", correct, " are correct");
}

/// Checks that a log-likelihood of one row, or the mean of several, is one of probabilities.
void check_nats(double nats, std::string_view what) {
  EK_CHECK(nats <= kLikelihoodRounding && nats >= -kMostRowNats, kData, what, " of ", nats, ", allowed: -",
           kMostRowNats, " to 0");
}

void check_likelihoods(const scoring::TaskScore& score) {
  check_nats(score.log_likelihood.value_or(0), "a log-likelihood");
  EK_CHECK(score.nll >= -kLikelihoodRounding, kData, "a negative log-likelihood of ", score.nll,
           " per token, allowed: 0 or more");
  if (score.kind != scoring::AnswerKind::kLikelihood || !score.log_likelihood) return;
  const double by_row = -*score.log_likelihood * static_cast<double>(score.likelihood_rows.value_or(0));
  const double by_token = score.nll * static_cast<double>(score.answer_tokens);
  EK_CHECK(is_near(by_row, by_token, kShareRounding), kData, "a score has a log-likelihood of ", -by_row,
           " in all by rows, ", -by_token, " by tokens");
}

template <typename T>
double mean_of_values(const std::vector<T>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// Checks that the single rows have the mean that the score states.
void check_mean_of_items(double items, double stated, double rounding, std::string_view what) {
  EK_CHECK(is_near(items, stated, rounding), kData, "a score has ", what, ' ', stated, ", its single rows ", items);
}

void check_single_rows(const scoring::ItemScores& items, const scoring::TaskScore& score) {
  using enum scoring::AnswerKind;
  const auto rows = static_cast<size_t>(score.rows);
  const size_t judged = score.kind == kLikelihood ? 0 : rows, texts = score.kind == kText ? rows : 0;
  EK_CHECK(items.correct.size() == judged && items.f1.size() == texts, kData, "scores of ", items.correct.size(),
           " and ", items.f1.size(), " single rows, expected ", judged, " and ", texts);
  for (const double nats : items.log_likelihood) check_nats(nats, "a log-likelihood of a row");
  if (!items.log_likelihood.empty())
    check_mean_of_items(mean_of_values(items.log_likelihood), score.log_likelihood.value_or(0), 2 * kItemRounding,
                        "log_likelihood");
  if (score.kind == kChoice)
    check_mean_of_items(mean_of_values(items.correct), score.accuracy, kShareRounding, "accuracy");
  if (score.kind != kText) return;
  check_mean_of_items(mean_of_values(items.correct), score.exact_match, kShareRounding, "exact_match");
  check_mean_of_items(mean_of_values(items.f1), score.f1, kShareRounding, "f1");
}

}  // namespace

void check_plausible(const Scored& scored) {
  const auto& score = scored.score;
  EK_CHECK(score.questions >= std::min<int64_t>(1, score.rows), kData, "a score of ", score.questions, " questions in ",
           score.rows, " rows");
  EK_CHECK(!score.client, kData, "a score names a client, which only the server does");
  check_whole_rows(score);
  check_accuracies(score);
  check_likelihoods(score);
  if (scored.items) check_single_rows(*scored.items, score);
}

}  // namespace evenkeel::fed
