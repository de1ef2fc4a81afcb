#include "report/client_scores.h"

#include <gtest/gtest.h>

#include "report/score_table.h"

namespace evenkeel::report {
namespace {

struct Said {
  int64_t round, client;
  double accuracy;
  scoring::RowsOf rows = scoring::RowsOf::kOwn;
};

/// Returns a run of clients 0 to 2, of which 0 is named "north". Each has ten questions of its own, 30 together.
records::RunRecords run_of(std::string label, std::initializer_list<Said> all) {
  records::RunRecords run;
  run.label = std::move(label);
  for (const auto& [round, client, accuracy, rows] : all) {
    const int64_t count = rows == scoring::RowsOf::kOwn ? 10 : 30;
    scoring::TaskScore score{.task = "files", .budget = 0.25 * static_cast<double>(client + 1)};
    score.rows = score.questions = count;
    score.accuracy = accuracy;
    score.client =
        scoring::ClientOfScore{client, client == 0 ? std::optional<std::string>("north") : std::nullopt, rows};
    run.evaluations.push_back({round, "fedit", score});
  }
  return run;
}

records::RunRecords first_run() {
  return run_of("first", {{0, 0, 0.2},
                          {0, 1, 0.5},
                          {0, 2, 0.4},
                          {0, 0, 0.3, scoring::RowsOf::kAll},
                          {2, 0, 0.1},
                          {2, 1, 0.8},
                          {2, 2, 0.4},
                          {2, 0, 0.5, scoring::RowsOf::kAll},
                          {2, 1, 0.6, scoring::RowsOf::kAll}});
}

records::RunRecords second_run() { return run_of("second", {{2, 0, 0.7}, {2, 1, 0.5}, {2, 2, 0.4}}); }

TEST(ClientScores, AreSortedByGain) {
  const auto results = client_results(first_run().evaluations);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].who, "1");
  EXPECT_NEAR(*results[0].gain(), 30, 1e-9);
  EXPECT_EQ(results[2].who, "0 (north)");
  EXPECT_NEAR(results[2].all->accuracy, 0.5, 1e-12);
  EXPECT_FALSE(results[1].all);
}

/// A difference of one question out of ten is not a loss.
TEST(ClientScores, ADifferenceOfOneQuestionIsNoChange) {
  EXPECT_EQ(join(clients_summary(first_run())),
            "3 clients at their own budgets, files: 1 gain, 0 lose, 2 within one question; mean on own rows 36.7 "
            "before, 43.3 now, on all rows 55.0");
  EXPECT_EQ(join(clients_summary(second_run())),
            "3 clients at their own budgets, files: mean on own rows 53.3, on all rows -");
  EXPECT_EQ(join(clients_summary(run_of("none", {}))), "");
}

TEST(ClientScores, TheTableComparesClientsBeforeAndNowAndAcrossRuns) {
  const auto text = text_of(client_scores_tables(std::vector{first_run(), second_run()}));
  EXPECT_NE(text.find("1           0.500        50.0     80.0  +30.0      60.0        10         10"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("0 (north)   0.250        20.0     10.0  -10.0      50.0        10         10"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("second against first: 1 gain, 1 lose, 1 within one question"), std::string::npos) << text;
  EXPECT_NE(text.find("0 (north)   0.250   10.0    70.0  +60.0        10         10"), std::string::npos) << text;
}

TEST(ClientScores, ALowerNegativeLogLikelihoodIsAGain) {
  scoring::TaskScore before{.task = "files"}, after = before;
  before.kind = after.kind = scoring::AnswerKind::kLikelihood;
  before.nll = 2.5;
  after.nll = 2.25;
  before.client = after.client = scoring::ClientOfScore{.id = 1};
  const std::vector<fed::EvaluationRecord> evaluations{{0, "fedit", before}, {3, "fedit", after}};
  EXPECT_NEAR(*client_results(evaluations)[0].gain(), 0.25, 1e-12);
  records::RunRecords run;
  run.label = "run";
  run.evaluations = evaluations;
  EXPECT_NE(join(clients_summary(run))
                .find("1 gain, 0 lose, 0 within one question; mean on own rows 2.500 before, 2.250 now"),
            std::string::npos)
      << join(clients_summary(run));
}

/// A method without rank evaluation modes is compared with each mode of a rank method.
TEST(ClientScores, EachRankEvaluationModeIsCompared) {
  auto ranks = second_run();
  for (auto& evaluation : ranks.evaluations) evaluation.score.rank_eval_mode = "b";
  const auto text = text_of(client_scores_tables(std::vector{first_run(), ranks}));
  EXPECT_NE(text.find("second (b) against first: 1 gain, 1 lose, 1 within one question"), std::string::npos) << text;
}

TEST(ClientScores, RunsWithoutClientScoresAreReported) {
  EXPECT_NE(text_of(client_scores_tables(std::vector{run_of("none", {})})).find("none: nothing is scored per client"),
            std::string::npos);
}

TEST(ClientScores, AreInNoOtherTable) {
  const auto run = first_run();
  EXPECT_TRUE(run.scores(2).empty());
  std::vector<scoring::TaskScore> scores;
  for (const auto& evaluation : run.evaluations) scores.push_back(evaluation.score);
  EXPECT_EQ(score_text(scores), "");
  EXPECT_NE(text_of(client_scores_tables(scores)).find("0 (north)"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel::report
