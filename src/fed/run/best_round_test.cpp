#include "fed/run/best_round.h"

#include <gtest/gtest.h>

namespace evenkeel::fed {
namespace {

std::vector<RoundValue> rising(const std::vector<double>& values) {
  std::vector<RoundValue> all;
  for (const double value : values) all.push_back({2 * static_cast<int64_t>(all.size() + 1), value});
  return all;
}

bool stalled(int64_t patience, double min_delta, const std::vector<double>& values) {
  return has_stalled({.patience = patience, .min_delta = min_delta}, scoring::find_measure("log_likelihood"),
                     rising(values));
}

TEST(StopRule, EndsARunAfterSoManyEvaluationsWithoutAGain) {
  EXPECT_FALSE(stalled(2, 0, {}));
  EXPECT_FALSE(stalled(2, 0, {-3}));
  EXPECT_FALSE(stalled(2, 0, {-3, -4}));
  EXPECT_TRUE(stalled(2, 0, {-3, -4, -5}));
  EXPECT_FALSE(stalled(2, 0, {-3, -4, -2, -5}));
  EXPECT_TRUE(stalled(2, 0, {-3, -4, -2, -5, -2}));  // an equal value is no gain
  EXPECT_TRUE(stalled(1, 0, {1, 1}));
  EXPECT_FALSE(stalled(0, 0, {3, 2, 1, 0}));  // no rule
}

TEST(StopRule, ALowerValueIsAGainOfAMeasureThatShouldBeLow) {
  const auto stalled = [](const std::vector<double>& values) {
    return has_stalled({.patience = 2, .min_delta = 0.5}, scoring::find_measure("nll"), rising(values));
  };
  EXPECT_FALSE(stalled({3, 2.4, 1.8}));
  EXPECT_TRUE(stalled({3, 2.75, 2.5}));
  EXPECT_TRUE(stalled({3, 4, 5}));
}

TEST(StopRule, CountsGainsFromTheLastGain) {
  EXPECT_FALSE(stalled(2, 0.5, {0, 0.6, 1.2}));
  EXPECT_TRUE(stalled(2, 0.5, {0, 0.25, 0.5}));
  EXPECT_FALSE(stalled(3, 0.5, {0, 0.25, 0.5, 0.625}));  // small steps add up
  EXPECT_TRUE(stalled(1, 0.5, {0, 0.625, 1.0}));
}

EvaluationRecord scored(int64_t round, const std::string& task, double budget, double log_likelihood,
                        const std::string& mode = "") {
  EvaluationRecord record{
      .round = round, .method = "fedit", .score = {.task = task, .budget = budget, .rank_eval_mode = mode}};
  record.score.log_likelihood = log_likelihood;
  record.score.accuracy = -log_likelihood / 10;
  return record;
}

RunConfig comparing(const std::string& best = "") {
  const auto text = concat(
      "[train]\nrounds = 9\n[evaluate]\ntasks = [\"builtin:facts\", \"builtin:sizes\"]\nkeep_best = true\nevery = "
      "1\nbudgets = [0.25, 1.0]\nbest = { ",
      best, " }\n");
  return settle(ExperimentConfig::read(config::Table::parse(text, "config")), {});
}

const std::vector<EvaluationRecord> kScores = {
    scored(0, "builtin:facts", 0.25, 0),  scored(0, "builtin:sizes", 0.25, 0),  scored(0, "builtin:facts", 1, 0),
    scored(0, "builtin:sizes", 1, 0),     scored(1, "builtin:facts", 0.25, -1), scored(1, "builtin:sizes", 0.25, -2),
    scored(1, "builtin:facts", 1, -3),    scored(1, "builtin:sizes", 1, -6),    scored(3, "builtin:facts", 0.25, -2),
    scored(3, "builtin:sizes", 0.25, -2), scored(3, "builtin:facts", 1, -2),    scored(3, "builtin:sizes", 1, -4)};
const std::vector<std::string> kTasks = {"builtin:facts", "builtin:sizes"};

TEST(RoundValues, AreMeansOfTheSelectedScores) {
  const auto of = [](const std::string& best) { return round_values(comparing(best), kTasks, {""}, kScores); };
  EXPECT_EQ(of(""), (std::vector<RoundValue>{{1, -3}, {3, -2.5}}));
  EXPECT_EQ(of("budget = 1.0"), (std::vector<RoundValue>{{1, -4.5}, {3, -3}}));
  EXPECT_EQ(of("tasks = [\"builtin:facts\"]"), (std::vector<RoundValue>{{1, -2}, {3, -2}}));
  EXPECT_EQ(of("tasks = [\"builtin:sizes\"], budget = 0.25"), (std::vector<RoundValue>{{1, -2}, {3, -2}}));
  const auto accuracies = of("measure = \"accuracy\"");
  EXPECT_NEAR(accuracies.at(0).value, 0.3, 1e-15);
  EXPECT_EQ(of("measure = \"invalid_rate\"").at(0).value, 0) << "every measure of the list can be asked for";
}

TEST(RoundValues, LeaveOutARoundThatIsNotScoredAsAWhole) {
  auto scores = kScores;
  scores[4].score.missing_clients = {2};
  EXPECT_EQ(round_values(comparing(), kTasks, {""}, scores), (std::vector<RoundValue>{{3, -2.5}}));
  scores.push_back(scored(1, "builtin:facts", 0.25, -1));  // scored again as a whole
  EXPECT_EQ(round_values(comparing(), kTasks, {""}, scores).size(), 2);
  scores[11].score.log_likelihood.reset();
  EXPECT_EQ(round_values(comparing(), kTasks, {""}, scores), (std::vector<RoundValue>{{1, -3}}));
  EXPECT_TRUE(round_values(comparing(), kTasks, {"a", "b"}, scores).empty());
}

TEST(RoundValues, AreThoseOfTheRunItselfInEveryRankEvaluationMode) {
  std::vector<EvaluationRecord> scores;
  for (const double budget : {0.25, 1.0})
    for (const auto* mode : {"a", "b"})
      scores.push_back(scored(1, "builtin:facts", budget, *mode == 'a' ? -1 : -2, mode));
  scores.push_back(scored(1, "builtin:facts", 1, -50, "b"));
  scores.back().score.served_by = scoring::ServedBy::kTransformers;
  scores.push_back(scored(1, "builtin:facts", 1, -60, "b"));
  scores.back().score.client = scoring::ClientOfScore{.id = 1};
  const auto config = comparing("tasks = \"builtin:facts\"");
  EXPECT_EQ(round_values(config, kTasks, {"a", "b"}, scores), (std::vector<RoundValue>{{1, -1.5}}));
}

}  // namespace
}  // namespace evenkeel::fed
