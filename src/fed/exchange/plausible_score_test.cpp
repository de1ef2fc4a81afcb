#include "fed/exchange/plausible_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/plain/files.h"
#include "base/testing.h"
#include "fed/exchange/merged_score.h"

namespace evenkeel::fed {
namespace {

/// Nine rows of choices, of which six are answered rightly and one cannot be read.
Scored choices() {
  Scored scored;
  auto& score = scored.score;
  score.task = "files";
  score.rows = score.questions = 9;
  score.accuracy = score.accuracy_cased = 6.0 / 9, score.accuracy_lowercase = 7.0 / 9;
  score.invalid_rate = 1.0 / 9, score.accuracy_valid = 6.0 / 8, score.accuracy_likelihood = 5.0 / 9;
  score.chance = 0.25, score.majority = 5.0 / 9, score.seconds = 1;
  score.log_likelihood = -2, score.likelihood_rows = 9;
  scored.items = scoring::ItemScores{
      .log_likelihood = {-1, -1, -1, -2, -2, -2, -3, -3, -3}, .correct = {1, 1, 1, 1, 1, 1, 0, 0, 0}, .f1 = {}};
  return scored;
}

/// Nine rows of free text that are all right: the mean of nine ones is above 1 in floating point.
Scored texts() {
  Scored scored;
  auto& score = scored.score;
  score.task = "files", score.kind = scoring::AnswerKind::kText;
  score.rows = score.questions = 9;
  for (int i = 0; i < 9; ++i) score.f1 += 1.0 / 9, score.exact_match += 1.0 / 9;
  scored.items =
      scoring::ItemScores{.log_likelihood = {}, .correct = std::vector<int64_t>(9, 1), .f1 = std::vector<double>(9, 1)};
  return scored;
}

Scored likelihoods() {
  Scored scored;
  auto& score = scored.score;
  score.task = "files", score.kind = scoring::AnswerKind::kLikelihood;
  score.rows = score.questions = 9;
  score.nll = 0.75, score.perplexity = std::exp(0.75), score.answer_tokens = 12;
  score.log_likelihood = -1, score.likelihood_rows = 9;
  return scored;
}

std::string said_of(Scored scored, const std::function<void(Scored&)>& change) {
  change(scored);
  const Task asked{.client = {.budget = 1}, .ask = Score{.task = "files", .own_rows = true}};
  return testing::refusal([&] { check_score(scored, asked, scored.score.kind, 9); });
}

struct Falsehood {
  const char* said;
  std::function<void(Scored&)> change;
};

void expect_refused(const Scored& good, const std::vector<Falsehood>& falsehoods) {
  EXPECT_EQ(said_of(good, [](Scored&) {}), "no error");
  for (const auto& [said, change] : falsehoods)
    EXPECT_NE(said_of(good, change).find(said), std::string::npos) << said << " in: " << said_of(good, change);
}

TEST(PlausibleScore, OfChoicesAgreesWithItself) {
  expect_refused(choices(),
                 {{"a log-likelihood of 0.5", [](Scored& s) { s.score.log_likelihood = 0.5; }},
                  {"a log-likelihood of 1e+99", [](Scored& s) { s.score.log_likelihood = 1e99; }},
                  {"a log-likelihood of -1e+99", [](Scored& s) { s.score.log_likelihood = -1e99; }},
                  {"a log-likelihood of nan", [](Scored& s) { s.score.log_likelihood = NAN; }},
                  {"its single rows -2", [](Scored& s) { s.score.log_likelihood = -1.9; }},
                  {"a log-likelihood of a row of 0.1",
                   [](Scored& s) { s.items->log_likelihood[0] = 0.1, s.items->log_likelihood[1] = -2.1; }},
                  {"a log-likelihood of a row of -1e+99", [](Scored& s) { s.items->log_likelihood[0] = -1e99; }},
                  {"its single rows", [](Scored& s) { s.items->correct[0] = 0; }},
                  {"no whole number of them", [](Scored& s) { s.score.accuracy_likelihood = 0.5; }},
                  {"no whole number of them", [](Scored& s) { s.score.invalid_rate = 0.1; }},
                  {"no whole number of them", [](Scored& s) { s.score.accuracy_lowercase = 0.7; }},
                  {"it is one of the two", [](Scored& s) { s.score.accuracy = 5.0 / 9; }},
                  {"cannot be read", [](Scored& s) { s.score.invalid_rate = 4.0 / 9; }},
                  {"accuracy_valid", [](Scored& s) { s.score.accuracy_valid = 1; }},
                  {"accuracy 1.1", [](Scored& s) { s.score.accuracy = 1.1; }},
                  {"a share of rows -0.1", [](Scored& s) { s.score.chance = -0.1; }},
                  {"no whole number of them", [](Scored& s) { s.score.majority = 0.9; }},
                  {"a share of rows 1.2", [](Scored& s) { s.score.majority = 1.2; }},
                  {"a score of 0 questions", [](Scored& s) { s.score.questions = 0; }},
                  {"names a client", [](Scored& s) { s.score.client = {.id = 2, .name = "another\n"}; }}});
}

TEST(PlausibleScore, OfTextsMayBePerfect) {
  EXPECT_GT(texts().score.f1, 1.0) << "by rounding";
  expect_refused(texts(), {{"f1 1.001", [](Scored& s) { s.score.f1 = 1.001; }},
                           {"f1 0.5", [](Scored& s) { s.score.f1 = 0.5; }},
                           {"exact_match", [](Scored& s) { s.score.exact_match = 8.0 / 9; }},
                           {"no whole number", [](Scored& s) { s.score.empty_rate = 0.3; }},
                           {"expected 9 and 9", [](Scored& s) { s.items->f1.pop_back(); }}});
}

TEST(PlausibleScore, OfLikelihoodsIsOneOfProbabilities) {
  expect_refused(
      likelihoods(),
      {{"a negative log-likelihood of -1", [](Scored& s) { s.score.nll = -1, s.score.perplexity = std::exp(-1); }},
       {"in all by rows", [](Scored& s) { s.score.log_likelihood = -0.5; }},
       {"a log-likelihood of 1", [](Scored& s) { s.score.log_likelihood = 1; }},
       {"expected 0 and 0", [](Scored& s) {
          s.items = scoring::ItemScores{
              .log_likelihood = std::vector<double>(9, -1), .correct = std::vector<int64_t>(9, 1), .f1 = {}};
        }}});
}

}  // namespace
}  // namespace evenkeel::fed
