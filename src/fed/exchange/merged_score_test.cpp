#include "fed/exchange/merged_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/format/record.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel::fed {
namespace {

/// What an evaluation over these rows would say. \param right  which were answered rightly, readable or not
/// \param answers  how often each answer is right
Scored choices(const std::string& correct, const std::string& readable, const std::map<std::string, int64_t>& answers) {
  const auto rows = static_cast<int64_t>(correct.size());
  const auto count = [&](const std::string& marks) { return std::count(marks.begin(), marks.end(), '1'); };
  Scored scored;
  auto& score = scored.score;
  score.task = "files";
  score.rows = score.questions = rows;
  score.accuracy = score.accuracy_cased = score.accuracy_lowercase = static_cast<double>(count(correct)) / rows;
  score.invalid_rate = static_cast<double>(rows - count(readable)) / rows;
  score.accuracy_valid = count(readable) > 0 ? static_cast<double>(count(correct)) / count(readable) : 0.0;
  score.accuracy_likelihood = static_cast<double>(count(readable)) / rows;
  score.chance = 0.25;
  score.seconds = 1.5;
  for (const auto& [answer, times] : answers)
    score.majority = std::max(score.majority, static_cast<double>(times) / rows);
  return scored;
}

TEST(MergedScore, ChoicesOfPartsAreThoseOfAllRowsToTheBit) {
  const std::vector<Scored> parts{choices("100", "111", {{"yes", 1}, {"no", 2}}), choices("0", "0", {{"yes", 1}}),
                                  choices("1101011", "1101111", {{"yes", 6}, {"no", 1}})};
  const auto whole = choices("10001101011", "11101101111", {{"yes", 8}, {"no", 3}});
  const auto all = merged(parts).score;
  EXPECT_EQ(all.rows, 11);
  EXPECT_EQ(all.questions, 11);
  EXPECT_EQ(all.accuracy, whole.score.accuracy);
  EXPECT_EQ(all.invalid_rate, whole.score.invalid_rate);
  EXPECT_EQ(all.accuracy_valid, whole.score.accuracy_valid);
  EXPECT_EQ(all.accuracy_likelihood, whole.score.accuracy_likelihood);
  EXPECT_EQ(all.majority, (2.0 + 1 + 6) / 11) << "no part says which of its answers is the most frequent";
  EXPECT_EQ(all.chance, 0.25);
  EXPECT_EQ(all.seconds, 4.5);
}

TEST(MergedScore, MeansAreWeightedByRowsAndLikelihoodsByTokens) {
  Scored one, two;
  one.score.kind = two.score.kind = scoring::AnswerKind::kText;
  one.score.rows = 3, two.score.rows = 5;
  one.score.f1 = 0.5, two.score.f1 = 0.1;
  one.score.exact_match = 1.0 / 3, two.score.exact_match = 2.0 / 5;
  const auto texts = merged(std::vector{one, two}).score;
  EXPECT_DOUBLE_EQ(texts.f1, (3 * 0.5 + 5 * 0.1) / 8);
  EXPECT_EQ(texts.exact_match, 3.0 / 8);
  one.score.kind = two.score.kind = scoring::AnswerKind::kLikelihood;
  one.score.nll = 2, two.score.nll = 1;
  one.score.answer_tokens = 30, two.score.answer_tokens = 10;
  const auto likelihoods = merged(std::vector{one, two}).score;
  EXPECT_DOUBLE_EQ(likelihoods.nll, 1.75);
  EXPECT_DOUBLE_EQ(likelihoods.perplexity, std::exp(1.75));
  EXPECT_EQ(likelihoods.answer_tokens, 40);
}

TEST(MergedScore, ScoresOfSingleRowsFollowEachOther) {
  auto one = choices("10", "11", {{"yes", 2}}), two = choices("110", "111", {{"no", 3}});
  one.score.log_likelihood = -2, two.score.log_likelihood = -1;
  one.score.likelihood_rows = 2, two.score.likelihood_rows = 3;
  EXPECT_FALSE(merged(std::vector{one, two}).items);
  one.items = scoring::ItemScores{.log_likelihood = {-1, -3}, .correct = {1, 0}, .f1 = {}};
  two.items = scoring::ItemScores{.log_likelihood = {-0.5, -1.5, -1}, .correct = {1, 1, 0}, .f1 = {}};
  const auto all = merged(std::vector{one, two});
  EXPECT_DOUBLE_EQ(all.score.log_likelihood.value(), -7.0 / 5);
  EXPECT_EQ(all.score.likelihood_rows, 5);
  EXPECT_EQ(all.items->log_likelihood, (std::vector<double>{-1, -3, -0.5, -1.5, -1}));
  EXPECT_EQ(all.items->correct, (std::vector<int64_t>{1, 0, 1, 1, 0}));
  two.score.log_likelihood.reset(), two.score.likelihood_rows.reset();
  EXPECT_FALSE(merged(std::vector{one, two}).score.log_likelihood);
}

/// What an evaluation of free text says over these log-likelihoods of rows; nothing: the row has none.
Scored texts(const std::vector<std::optional<double>>& rows) {
  Scored scored;
  auto& score = scored.score;
  score.task = "files";
  score.kind = scoring::AnswerKind::kText;
  score.rows = score.questions = std::ssize(rows);
  auto& items = scored.items.emplace();
  for (const auto& row : rows)
    if (row) items.log_likelihood.push_back(*row);
  items.f1.resize(rows.size());
  items.correct.resize(rows.size());
  score.likelihood_rows = std::ssize(items.log_likelihood);
  double sum = 0;
  for (const double one : items.log_likelihood) sum += one;
  if (*score.likelihood_rows > 0) score.log_likelihood = sum / static_cast<double>(*score.likelihood_rows);
  return scored;
}

TEST(MergedScore, AMeanLogLikelihoodIsOverTheRowsThatHaveOne) {
  const std::vector<std::vector<std::optional<double>>> clients = {
      {-1, std::nullopt, -3}, {-10}, {std::nullopt, std::nullopt}, {-2, -4, -6, std::nullopt, std::nullopt}};
  std::vector<std::optional<double>> rows;
  std::vector<Scored> parts;
  for (const auto& client : clients) {
    parts.push_back(texts(client));
    rows.insert(rows.end(), client.begin(), client.end());
  }
  const auto whole = texts(rows), all = merged(parts);
  EXPECT_EQ(whole.score.likelihood_rows, 6);
  EXPECT_DOUBLE_EQ(all.score.log_likelihood.value(), whole.score.log_likelihood.value());
  EXPECT_DOUBLE_EQ(all.score.log_likelihood.value(), -26.0 / 6);
  EXPECT_EQ(all.score.likelihood_rows, 6);
  EXPECT_EQ(all.items->log_likelihood, whole.items->log_likelihood);
  const auto none = merged(std::vector{texts({std::nullopt}), texts({std::nullopt, std::nullopt})}).score;
  EXPECT_FALSE(none.log_likelihood);
  EXPECT_EQ(none.likelihood_rows, 0);
}

TEST(MergedScore, AStrangersNumberOfLikelihoodsHasToBePossible) {
  const auto good = texts({-1, std::nullopt, -3});
  const Task asked{.client = {.budget = 1}, .ask = Score{.task = "files", .own_rows = true}};
  const auto refused = [&](auto change) {
    auto bad = good;
    change(bad);
    return testing::refusal([&] { check_score(bad, asked, scoring::AnswerKind::kText, 3); });
  };
  EXPECT_EQ(refused([](Scored&) {}), "no error");
  EXPECT_NE(refused([](Scored& bad) { bad.score.likelihood_rows.reset(); }).find("has their mean"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.likelihood_rows = 4; }).find("4 rows in 3"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.likelihood_rows = 1; }).find("2 single rows"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.likelihood_rows = 0; }).find("has their mean"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.log_likelihood.reset(); }).find("lacks"), std::string::npos);
}

TEST(MergedScore, AStrangersSingleRowsHaveToBePossible) {
  auto good = choices("110", "111", {{"yes", 3}});
  const Task asked{.client = {.budget = 1}, .ask = Score{.task = "files"}};
  good.score.log_likelihood = -2, good.score.likelihood_rows = 3;
  good.items = scoring::ItemScores{.log_likelihood = {-1, -2, -3}, .correct = {1, 1, 0}, .f1 = {}};
  EXPECT_NO_THROW(check_score(good, asked, scoring::AnswerKind::kChoice, 3));
  auto many = good;
  many.items->correct.push_back(1);
  EXPECT_THROW(check_score(many, asked, scoring::AnswerKind::kChoice, 3), Error);
  auto infinite = good;
  infinite.items->log_likelihood[1] = -std::numeric_limits<double>::infinity();
  EXPECT_THROW(check_score(infinite, asked, scoring::AnswerKind::kChoice, 3), Error);
}

/// A score of likelihoods as a node computes it.
Scored likelihood(double nll) {
  Scored scored;
  auto& score = scored.score;
  score.task = "files";
  score.kind = scoring::AnswerKind::kLikelihood;
  score.rows = score.questions = 3;
  score.nll = nll, score.perplexity = std::exp(nll);
  score.answer_tokens = 10, score.likelihood_rows = 3;
  score.log_likelihood = -nll * 10 / 3;
  return scored;
}

TEST(MergedScore, AStrangersMeasuresKeepTheRecordReadable) {
  const Task asked{.client = {.budget = 1}, .ask = Score{.task = "files", .own_rows = true}};
  const auto refused = [&](const std::function<void(Scored&)>& change, double nll = 2) {
    auto bad = likelihood(nll);
    change(bad);
    return testing::refusal([&] { check_score(bad, asked, scoring::AnswerKind::kLikelihood, 3); });
  };
  const auto keep = [](Scored&) {};
  EXPECT_EQ(refused(keep), "no error");
  EXPECT_EQ(refused(keep, 0), "no error");
  EXPECT_EQ(refused(keep, 699), "no error");
  for (const double nll : {701.0, 1e4, -1e4, 1e308})
    EXPECT_NE(refused(keep, nll).find("log-likelihood"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.perplexity = 1e308; }).find("a perplexity of"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.log_likelihood = -1e308; }).find("a log-likelihood of"),
            std::string::npos);
  for (const int64_t tokens : {int64_t{0}, INT64_MAX})
    EXPECT_NE(refused([&](Scored& bad) { bad.score.answer_tokens = tokens; }).find("tokens"), std::string::npos);
  for (const auto count : {&scoring::TaskScore::cut, &scoring::TaskScore::context_cut, &scoring::TaskScore::questions})
    EXPECT_NE(refused([&](Scored& bad) { bad.score.*count = INT64_MAX; }).find("in 3 rows"), std::string::npos);
  for (const double seconds : {-1.0, 1e308, 5e-324, std::nan("")})
    EXPECT_NE(refused([&](Scored& bad) { bad.score.seconds = seconds; }).find("a score that took"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.missing_clients = {7}; }).find("missing clients"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.bert_score = 1e308; }).find("BERTScore"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.predictions.resize(1); }).find("not asked for"), std::string::npos);
  for (const auto& items : {scoring::ItemScores{.log_likelihood = {-1, -2, -1e308}, .correct = {}, .f1 = {}},
                            scoring::ItemScores{.log_likelihood = {-1, -2, -3}, .correct = {INT64_MAX}, .f1 = {}},
                            scoring::ItemScores{.log_likelihood = {-1, -2, -3}, .correct = {}, .f1 = {1e308}}})
    EXPECT_NE(refused([&](Scored& bad) { bad.items = items; }).find("of a row"), std::string::npos);
  const std::vector parts(1000, likelihood(699));
  EXPECT_TRUE(std::isfinite(merged(parts).score.perplexity));
}

TEST(MergedScore, PartsOfAnotherTaskOrPointAreRefused) {
  auto other = choices("1", "1", {});
  other.score.budget = 0.5;
  EXPECT_THROW(merged(std::vector{choices("1", "1", {}), other}), Error);
  other = choices("1", "1", {});
  other.score.task = "files:more";
  EXPECT_THROW(merged(std::vector{choices("1", "1", {}), other}), Error);
}

TEST(MergedScore, AStrangersScoreHasToBePossible) {
  auto good = choices("110", "111", {{"yes", 3}});
  good.score.budget = 0.5, good.score.top_k = 2, good.score.rank_eval_mode = "b";
  const Task asked{.client = {.budget = 0.5, .top_k = 2}, .ask = Score{.task = "files", .rank_eval_mode = "b"}};
  EXPECT_NO_THROW(check_score(good, asked, scoring::AnswerKind::kChoice, 3));
  const auto refused = [&](auto change) {
    auto bad = good;
    change(bad);
    return testing::refusal([&] { check_score(bad, asked, scoring::AnswerKind::kChoice, 3); });
  };
  EXPECT_NE(refused([](Scored& bad) { bad.score.task = "boolq"; }).find("asked: files"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.kind = scoring::AnswerKind::kText; }), "no error");
  EXPECT_NE(refused([](Scored& bad) { bad.score.budget = 1; }).find("budget 1"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.top_k = 4; }).find("K = 4"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.rank_eval_mode = "a"; }), "no error");
  EXPECT_NE(refused([](Scored& bad) { bad.score.served_by = scoring::ServedBy::kTransformers; }), "no error");
  EXPECT_NE(refused([](Scored& bad) { bad.score.rows = 4; }).find("4 rows, asked: 3"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.accuracy = 1.5; }), "no error");
  EXPECT_NE(refused([](Scored& bad) { bad.score.f1 = std::nan(""); }), "no error");
  EXPECT_NE(refused([](Scored& bad) { bad.score.nll = std::numeric_limits<double>::infinity(); }), "no error");
  EXPECT_NE(refused([](Scored& bad) { bad.score.majority = 2; }), "no error");
  EXPECT_NE(refused([](Scored& bad) { bad.score.without_scores = {7}; }).find("missing clients"), std::string::npos);
  EXPECT_NE(refused([](Scored& bad) { bad.score.questions = 9; }), "no error");
}

}  // namespace
}  // namespace evenkeel::fed
