#include "comparison/views.h"

#include <gtest/gtest.h>

#include "comparison/curves.h"
#include "comparison/traffic.h"

namespace evenkeel::comparison {
namespace {

scoring::TaskScore choice(const std::string& task, double budget, double accuracy, double unreadable) {
  scoring::TaskScore score{.task = task, .budget = budget, .rows = 4, .questions = 4, .accuracy = accuracy};
  score.invalid_rate = unreadable;
  score.chance = task == "a" ? 0.25 : 0.5;
  score.majority = 0.75;
  return score;
}

/// A run with scores of two tasks at budgets 0.5 and 1, before the first and after the second round. The accuracy of
/// task "b" is twice that of "a".
ArmRun run_of(const std::string& arm, int64_t seed, double accuracy, double unreadable = 0) {
  ArmRun run{.arm = arm, .seed = seed, .records = records::RunRecords()};
  run.records->seed = seed;
  for (const int64_t round : {0, 2})
    for (const double budget : {0.5, 1.0})
      for (const auto& [task, factor] : {std::pair{"a", 1.0}, {"b", 2.0}})
        run.records->evaluations.push_back(
            {round, arm, choice(task, budget, factor * budget * accuracy * (round > 0 ? 1 : 0.5), unreadable)});
  for (const int64_t round : {1, 2}) {
    fed::RoundRecord record;
    record.round = round;
    record.loss = static_cast<double>(seed) / static_cast<double>(round);
    record.bytes_up = 10 * seed, record.bytes_down = 5;
    record.bytes_up_parts = {{"adapters", 10 * seed}};
    record.flops = 100;
    run.records->rounds.push_back(record);
  }
  return run;
}

StudyRuns two_arms() {
  return {.name = "s",
          .reference = "x",
          .endpoint = "accuracy",
          .arms = {"x", "y"},
          .seeds = {1, 3},
          .runs = {run_of("x", 1, 0.1), run_of("x", 3, 0.3), run_of("y", 1, 0.2), run_of("y", 3, 0)}};
}

const View& view_of(const std::vector<View>& views, std::string_view measure, const std::string& task) {
  for (const auto& view : views)
    if (view.comparison.endpoint->name == measure && view.task == task) return view;
  throw std::runtime_error("no such view");
}

TEST(Views, AreOneOfEveryMeasureForEachTaskAndTheirMean) {
  const auto study = two_arms();
  const auto views = views_of(study, ScoreLookup(study, false));
  const auto& mean = view_of(views, "accuracy", "");
  EXPECT_EQ(&views[0], &mean) << "the mean over tasks is first";
  EXPECT_NEAR(mean.comparison.served[0].arms[0].budgets[1].mean.value(), 1.5 * 0.2, 1e-12);
  EXPECT_NEAR(mean.chance.value(), 0.375, 1e-12);
  const auto& task = view_of(views, "accuracy", "b");
  EXPECT_NEAR(task.comparison.served[0].arms[0].budgets[0].mean.value(), 0.2, 1e-12);
  EXPECT_EQ(task.chance, 0.5);
  EXPECT_EQ(task.majority, 0.75);
  EXPECT_FALSE(view_of(views, "invalid_rate", "b").chance) << "no accuracy";
  EXPECT_FALSE(task.comparison.served[0].arms[1].differences[0].bca) << "no bootstrap";
}

TEST(Views, OfStudiesWithoutScoresAreNone) {
  auto study = two_arms();
  for (auto& run : study.runs) run.records->evaluations.clear();
  EXPECT_TRUE(views_of(study, ScoreLookup(study, false)).empty());
}

TEST(Views, MeansOverBudgetsTakeSeedsThatAreCompleteAtAll) {
  auto study = two_arms();
  std::erase_if(study.runs[1].records->evaluations,
                [](const auto& one) { return one.score.budget == 1 && one.score.task == "a" && one.round == 2; });
  const auto compared = compare(study, {.bootstrap = false, .beside = false});
  const auto& arms = compared.served[0].arms;
  const auto mean = mean_over_budgets(arms[0]);
  EXPECT_EQ(mean.complete, 1);
  EXPECT_NEAR(mean.mean.value(), 1.5 * 0.1 * 0.75, 1e-12);
  EXPECT_FALSE(mean.interval);
  const auto both = mean_over_budgets(arms[1]);
  EXPECT_NEAR(both.interval->high - *both.mean, 12.706204736 * 1.5 * 0.75 * 0.1, 1e-8) << "t(0.975, 1) s / sqrt(2)";
  const auto difference = difference_over_budgets(arms[1], arms[0]);
  ASSERT_EQ(difference.by_seed.size(), 1u);
  EXPECT_NEAR(difference.mean.value(), 1.5 * 0.75 * 0.1, 1e-12);
}

TEST(Views, AMeasureThatIs0BecauseNothingCanBeReadIsSaidToBeSo) {
  auto study = two_arms();
  study.runs[2] = run_of("y", 1, 0, 1);
  study.runs[3] = run_of("y", 3, 0, 1);
  const ScoreLookup scores(study, false);
  const auto compared = compare(study, scores, {.bootstrap = false, .beside = false});
  EXPECT_EQ(unreadable(study, scores, compared, compared.served[0]),
            "This measure is 0 for y at budgets 0.5, 1: 100 % of the answers there cannot be read or are empty.");
  study.runs[3] = run_of("y", 3, 0, 0.9);
  const ScoreLookup others(study, false);
  EXPECT_EQ(unreadable(study, others, compared, compared.served[0]), "") << "some answers were wrong";
}

TEST(Curves, AreMeansOverTheRunsOfAnArmWithTheirIntervals) {
  const auto study = two_arms();
  const auto losses = round_curves(study, [](const fed::RoundRecord& round) { return round.loss; });
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0].points[1].mean, 1);
  EXPECT_NEAR(losses[0].points[0].interval->high, 2 + 12.706204736, 1e-8);
  EXPECT_EQ(losses[0].by_run[1][1], 1.5);
  const auto scores = score_curves(study, scoring::find_measure("accuracy"), std::nullopt);
  ASSERT_EQ(scores[0].points.size(), 2u);
  EXPECT_EQ(scores[0].points[0].round, 0);
  EXPECT_NEAR(scores[0].points[0].mean, 0.5 * 1.5 * 0.75 * 0.2, 1e-12);
  EXPECT_NEAR(score_curves(study, scoring::find_measure("accuracy"), 1.0)[0].points[1].mean, 1.5 * 0.2, 1e-12);
}

TEST(Curves, ARunThatLacksATaskHasNoPointOfThatRound) {
  auto study = two_arms();
  auto& evaluations = study.runs[0].records->evaluations;
  evaluations.erase(evaluations.end() - 1);
  const auto curve = score_curves(study, scoring::find_measure("accuracy"), std::nullopt)[0];
  EXPECT_EQ(curve.points[0].runs, 2);
  EXPECT_EQ(curve.points[1].runs, 1);
  EXPECT_FALSE(curve.by_run[0][1]);
}

TEST(Curves, LeaveOutTheScoresOfExportedAdapters) {
  auto study = two_arms();
  const auto& accuracy = scoring::find_measure("accuracy");
  const auto before = score_curves(study, accuracy, std::nullopt);
  auto& evaluations = study.runs[2].records->evaluations;
  for (auto exported : std::vector(evaluations)) {
    exported.score.served_by = scoring::ServedBy::kTransformers;
    exported.score.accuracy = 0.875;
    evaluations.push_back(exported);
  }
  const auto after = score_curves(study, accuracy, std::nullopt);
  ASSERT_EQ(after.size(), 2u);
  for (size_t arm = 0; arm < 2; ++arm) EXPECT_EQ(after[arm].by_run, before[arm].by_run);
  EXPECT_NEAR(after[1].points[1].mean, 1.5 * 0.75 * 0.1, 1e-12);
}

TEST(Curves, WhatHadBeenSpentIsTheMeanOfTheRunsThatReachedTheRound) {
  auto study = two_arms();
  study.runs[1].records->rounds.pop_back();
  const auto spent = mean_spent(runs_of(study, "x"));
  ASSERT_EQ(spent.size(), 3u);
  EXPECT_EQ(spent[1].bytes, (15 + 35) / 2.0);
  EXPECT_EQ(spent[2].bytes, 30);
  EXPECT_EQ(spent[2].flops, 200);
  EXPECT_FALSE(spent[1].seconds) << "the rounds have no measured seconds";
  EXPECT_FALSE(spent[1].simulated_seconds);
}

TEST(Traffic, IsSummedOverRoundsAndAveragedOverRuns) {
  const auto traffic = traffic_of(two_arms(), "x");
  ASSERT_EQ(traffic.size(), 1u);
  EXPECT_EQ(traffic[0].up, 2 * 10 * 2);
  EXPECT_FALSE(traffic[0].down);
}

TEST(ArmsOf, RunsThatRepeatASeedAreArmsOfTheirOwn) {
  std::vector<records::RunRecords> runs(3);
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].method = "fedit";
    runs[i].label = std::string(1, static_cast<char>('a' + i));
  }
  runs[2].seed = 5;
  const auto study = arms_of(runs);
  EXPECT_EQ(study.arms, (std::vector<std::string>{"a", "b"}));
  runs[1].label = "a";
  EXPECT_EQ(arms_of(runs).arms, (std::vector<std::string>{"a", "a (2)"})) << "one folder twice";
  EXPECT_NE(study.find("a", 5)->records, std::nullopt);
  EXPECT_EQ(study.find("b", 5)->records, std::nullopt);
}

}  // namespace
}  // namespace evenkeel::comparison
