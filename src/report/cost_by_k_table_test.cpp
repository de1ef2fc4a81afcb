#include "report/cost_by_k_table.h"

#include <gtest/gtest.h>

#include "base/plain/json.h"
#include "comparison/comparison.h"
#include "report/study_report.h"

namespace evenkeel::report {
namespace {

using comparison::ArmRun, comparison::StudyRuns, comparison::costs_by_k, comparison::client_top_ks,
    comparison::all_top_ks;

fed::ClientOfRound client_with(double budget, int64_t top_k, int64_t tokens, double flops, double seconds) {
  fed::ClientOfRound client;
  client.budget = budget;
  client.top_k = top_k;
  client.tokens = tokens;
  client.flops = flops;
  client.seconds = seconds;
  return client;
}

/// A run of one round for each list of clients.
ArmRun run_with_clients(const std::string& arm, int64_t seed, std::vector<std::vector<fed::ClientOfRound>> rounds) {
  ArmRun run{.arm = arm, .seed = seed, .records = records::RunRecords()};
  for (auto& clients : rounds) {
    auto& record = run.records->rounds.emplace_back();
    record.round = static_cast<int64_t>(run.records->rounds.size());
    record.clients = std::move(clients);
  }
  return run;
}

StudyRuns study_with(std::vector<ArmRun> runs) {
  return {.name = "s",
          .reference = "a",
          .endpoint = "accuracy",
          .arms = {"a", "b"},
          .seeds = {1, 2},
          .runs = std::move(runs)};
}

/// Arm a has clients of K = 2 (two budgets) and K = 8, arm b of K = 8 alone; its second run is missing.
StudyRuns arms_of_unequal_k() {
  return study_with({run_with_clients("a", 1,
                                      {{client_with(0.25, 2, 100, 200, 3), client_with(1, 8, 100, 800, 4)},
                                       {client_with(0.3, 2, 300, 600, 5), client_with(1, 8, 300, 2400, 12)}}),
                     run_with_clients("a", 2, {{client_with(0.25, 2, 100, 200, 1), client_with(1, 8, 50, 400, 2)}}),
                     run_with_clients("b", 1, {{client_with(0.25, 8, 10, 50, 0), client_with(1, 8, 10, 70, 0)}}),
                     {.arm = "b", .seed = 2, .records = {}, .missing = "failed"}});
}

TEST(CostByK, TokensAreAddedUpWithinARunAndMeansAreOverRuns) {
  const auto study = arms_of_unequal_k();
  EXPECT_EQ(client_top_ks(study), (std::vector<int64_t>{2, 8}));
  const auto costs = costs_by_k(study, study.arms, client_top_ks(study));
  ASSERT_EQ(costs.size(), 4u);
  const auto& [arm, top_k, runs, seconds_runs, flops, seconds, interval, flops_share, seconds_share] = costs[0];
  EXPECT_EQ(arm, "a");
  EXPECT_EQ(top_k, 2);
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(seconds_runs, 2);
  EXPECT_DOUBLE_EQ(flops.value(), 2000);
  EXPECT_DOUBLE_EQ(seconds.value(), (1000 * 8.0 / 400 + 1000 * 1.0 / 100) / 2);
  EXPECT_DOUBLE_EQ(flops_share.value(), 0.25);
  EXPECT_DOUBLE_EQ(seconds_share.value(), ((8.0 / 400) / (16.0 / 400) + (1.0 / 100) / (2.0 / 50)) / 2);
  const auto expected = comparison::t_interval(std::vector{20.0, 10.0}).value();
  EXPECT_DOUBLE_EQ(interval->low, expected.low);
  EXPECT_DOUBLE_EQ(interval->high, expected.high);
  EXPECT_DOUBLE_EQ(costs[1].seconds_share.value(), 1);
}

TEST(CostByK, AnArmWithoutClientsOfSomeKAndRecordsWithoutSecondsSaySo) {
  const auto study = arms_of_unequal_k();
  const auto costs = costs_by_k(study, study.arms, client_top_ks(study));
  EXPECT_EQ(costs[2].runs, 0);
  EXPECT_FALSE(costs[2].flops);
  EXPECT_EQ(costs[3].runs, 1);
  EXPECT_DOUBLE_EQ(costs[3].flops.value(), 6000);
  EXPECT_FALSE(costs[3].seconds);
  EXPECT_EQ(text_of(cost_by_k_table(costs)),
            "cost of 1,000 tokens of training by experts per token (K), mean over runs\n"
            "arm  K      FLOPs  % of K=8        seconds  % of K=8  runs\n"
            "a    2    2.000 k      25.0  15.00 +-63.53      37.5     2\n"
            "     8    8.000 k     100.0   40.00 +-0.00     100.0     2\n"
            "b    2  no client         -              -         -     0\n"
            "     8    6.000 k     100.0              -         -     1\n"
            "FLOPs are counted, seconds measured by each client while it trains; +-: half of\n"
            "  the 95 % interval (t). runs: with clients of that K; in brackets: with\n"
            "  seconds, where fewer.\n");
}

TEST(CostByK, TheKOfEvaluationsCountWhereAllAreAskedFor) {
  auto study = arms_of_unequal_k();
  fed::EvaluationRecord record;
  record.round = 2;
  record.score.top_k = 4;
  study.runs[0].records->evaluations.push_back(record);
  EXPECT_EQ(all_top_ks(study), (std::vector<int64_t>{2, 4, 8}));
  const auto costs = costs_by_k(study, std::vector<std::string>{"a"}, all_top_ks(study));
  EXPECT_EQ(costs[1].runs, 0);
  EXPECT_NE(text_of(cost_by_k_table(costs)).find("     4  no client"), std::string::npos);
}

TEST(CostByK, SharesAreOfTheLargestKThatAClientHas) {
  auto study =
      study_with({run_with_clients("a", 1, {{client_with(0.25, 2, 10, 20, 1), client_with(0.5, 4, 10, 40, 4)}}),
                  run_with_clients("b", 1, {{client_with(1, 16, 10, 160, 9)}})});
  fed::EvaluationRecord record;
  record.score.top_k = 8;
  study.runs[0].records->evaluations.push_back(record);
  const auto costs = costs_by_k(study, std::vector<std::string>{"a"}, std::vector<int64_t>{2, 4, 8, 16});
  EXPECT_DOUBLE_EQ(costs[0].flops_share.value(), 0.5);
  EXPECT_DOUBLE_EQ(costs[0].seconds_share.value(), 0.25);
  EXPECT_DOUBLE_EQ(costs[1].flops_share.value(), 1);
  EXPECT_FALSE(costs[2].flops_share);
  const auto text = text_of(cost_by_k_table(costs));
  EXPECT_NE(text.find("% of K=4"), std::string::npos) << text;
  EXPECT_EQ(text.find("% of K=8"), std::string::npos) << text;
}

TEST(CostByK, JsonHasTheSharesOfTheTables) {
  auto study = study_with({run_with_clients("a", 1, {{client_with(0.5, 4, 10, 40, 4)}}),
                           run_with_clients("b", 1, {{client_with(1, 8, 10, 80, 9)}})});
  for (auto& run : study.runs)
    run.records->evaluations.push_back({1, "fedit", {.task = "t", .rows = 4, .questions = 4, .accuracy = 0.5}});
  const auto json = parse_json(json_report(study, comparison::compare(study)), "report");
  const auto& of_a = json["costs"][0]["by_top_k"];
  ASSERT_EQ(of_a[0]["top_k"], 4);
  EXPECT_TRUE(of_a[0]["flops_share"].is_null()) << "it has no client of the largest K";
}

TEST(CostByK, TheRunsWithSecondsAreNamedWhereTheyAreFewer) {
  const auto study = study_with({run_with_clients("a", 1, {{client_with(1, 8, 10, 80, 0)}}),
                                 run_with_clients("a", 2, {{client_with(1, 8, 10, 80, 2)}})});
  const auto costs = costs_by_k(study, std::vector<std::string>{"a"}, client_top_ks(study));
  EXPECT_EQ(costs[0].runs, 2);
  EXPECT_EQ(costs[0].seconds_runs, 1);
  EXPECT_DOUBLE_EQ(costs[0].seconds.value(), 200);
  EXPECT_DOUBLE_EQ(costs[0].seconds_share.value(), 1);
  EXPECT_NE(text_of(cost_by_k_table(costs)).find("200.0     100.0  2 (1)\n"), std::string::npos)
      << text_of(cost_by_k_table(costs));
}

TEST(CostByK, RoundsWithoutSecondsDoNotMakeTheOthersFaster) {
  const auto study =
      study_with({run_with_clients("a", 1, {{client_with(1, 8, 10, 80, 0)}, {client_with(1, 8, 10, 80, 2)}})});
  const auto costs = costs_by_k(study, std::vector<std::string>{"a"}, client_top_ks(study));
  EXPECT_EQ(costs[0].seconds_runs, 1);
  EXPECT_DOUBLE_EQ(costs[0].flops.value(), 8000);
  EXPECT_DOUBLE_EQ(costs[0].seconds.value(), 200);
}

TEST(CostByK, ADenseModelHasNoK) {
  auto study = study_with({run_with_clients("a", 1, {{client_with(1, 0, 10, 50, 2)}})});
  const auto table = cost_by_k_table(costs_by_k(study, std::vector<std::string>{"a"}, client_top_ks(study)));
  EXPECT_NE(text_of(table).find("a    dense  5.000 k  100.0"), std::string::npos) << text_of(table);
}

}  // namespace
}  // namespace evenkeel::report
