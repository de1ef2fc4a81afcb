#include "report/demo_summary.h"

#include <gtest/gtest.h>

#include <tuple>

namespace evenkeel::report {
namespace {

/// A run that scored three tasks of 100, 50 and 75 questions at four budgets, after its fourth round. What the exported
/// adapter scored is no result of the demo.
records::RunRecords scored_demo(std::vector<double> accuracies, double invalid_rate) {
  records::RunRecords run;
  for (const double budget : {0.125, 0.25, 0.5, 1.0})
    for (const auto& [task, rows, accuracy] :
         {std::tuple{"a", 100, accuracies.at(0)}, {"b", 50, accuracies.at(1)}, {"c", 75, accuracies.at(2)}}) {
      scoring::TaskScore score{.task = task, .budget = budget, .rows = rows, .accuracy = accuracy};
      score.invalid_rate = invalid_rate;
      run.evaluations.push_back({4, "fedit", score});
      score.served_by = scoring::ServedBy::kTransformers;
      score.accuracy = 0.35;
      run.evaluations.push_back({4, "fedit", score});
    }
  return run;
}

records::RunRecords readable_demo() { return scored_demo({0.5, 0.2, 0.9}, 0.125); }

std::string said_of(double mean, const records::RunRecords& run) {
  const DemoLine before{.title = "before", .by_budget = {20, 30}, .mean = 25}, first{.title = "FedIT", .mean = 50};
  return demo_sentence(before, first, {.title = "UB-SMoE", .mean = mean}, run);
}

TEST(DemoSummary, LinesAreMeansOverTheTasksOfTheRunItself) {
  const auto line = demo_line("FedIT", readable_demo(), 4);
  ASSERT_EQ(line.by_budget.size(), 4u);
  EXPECT_NEAR(line.by_budget[1], 160 / 3.0, 1e-9);
  EXPECT_NEAR(line.mean, 160 / 3.0, 1e-9);
  EXPECT_TRUE(demo_line("FedIT", readable_demo(), 3).by_budget.empty());
}

// The variances of the tasks are 0.25 / 100 + 0.16 / 50 + 0.09 / 75 = 0.0069 in all, and 196 sqrt(2 * 0.0069) / 3 is
// 7.6749. Other budgets ask the same questions and make it no smaller.
TEST(DemoSummary, WhatChanceCanDoFollowsFromTheQuestionsOfEachTask) {
  EXPECT_NEAR(half_interval(readable_demo()), 7.6749, 1e-4);
  EXPECT_EQ(half_interval(records::RunRecords()), 0);
}

TEST(DemoSummary, ADifferenceOfPointsIsComparedWithWhatChanceCanDo) {
  const auto run = readable_demo();
  EXPECT_EQ(
      said_of(57.6, run),
      "What it shows: one adapter from unequal clients answers at every K: 25.0 % before, 50.0 % with FedIT, 57.6 % "
      "with UB-SMoE; their difference of 7.6 points is within sampling error at one seed (95 % over these "
      "questions: 7.7 points).\n");
  EXPECT_EQ(
      said_of(42.3, run),
      "What it shows: one adapter from unequal clients answers at every K: 25.0 % before, 50.0 % with FedIT, 42.3 % "
      "with UB-SMoE; their difference of 7.7 points exceeds sampling error: confirm it with other seeds (95 % over "
      "these questions: 7.7 points).\n");
}

TEST(DemoSummary, ARunThatWasNotScoredBeforeTrainingHasNoAccuracyBefore) {
  const DemoLine first{.title = "FedIT", .mean = 50}, second{.title = "UB-SMoE", .mean = 51};
  const auto sentence = demo_sentence(demo_line("before", readable_demo(), 0), first, second, readable_demo());
  EXPECT_NE(sentence.find("at every K: 50.0 % with FedIT, 51.0 % with UB-SMoE;"), std::string::npos) << sentence;
}

TEST(DemoSummary, AccuracyThatIs0BecauseNothingCanBeReadIsNoResult) {
  const DemoLine first{.title = "FedIT"}, second{.title = "UB-SMoE"};
  EXPECT_EQ(demo_sentence(first, first, second, scored_demo({0, 0, 0}, 1)),
            "What it shows: accuracy is 0 because no answer can be read (invalid 100 %); it says nothing of FedIT and "
            "UB-SMoE.\n");
  for (const auto& sentence :
       {demo_sentence(first, first, second, scored_demo({0, 0, 0}, 0.75)), said_of(57.6, scored_demo({0, 0, 0}, 1))})
    EXPECT_EQ(sentence.find("What it shows: one adapter from unequal clients"), 0u) << sentence;
}

}  // namespace
}  // namespace evenkeel::report
