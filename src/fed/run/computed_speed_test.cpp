#include "fed/run/computed_speed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

constexpr double kExact = 1e-12;  // relative; the FLOPs of a test are whole numbers below 2^53

/// The multiply-adds of a token of testing::kSmallModel with testing::kSmallRun's LoRA, counted by hand: width 24, 4
/// query and 2 key heads of 6, 7 experts of width 20, 2 layers, 420 words, rank 3 on attention, experts and router.
struct HandCount {
  double frozen, scores, lora;
  HandCount(double length, double top_k)
      : frozen(2 * (2 * 24 * 24 + 2 * 24 * 12 + 24 * 7 + top_k * 3 * 24 * 20) + 24 * 420),
        scores(2 * 2 * 24 * length),
        lora(2 * 3 * (2 * (24 + 24) + 2 * (24 + 12) + (24 + 7) + top_k * 3 * (24 + 20))) {}
};

class ComputedSpeed : public testing::SmallRun {
 protected:
  /// Returns the FLOPs of a forward pass over a row, mean over evaluate.budgets: 1 and 4 of 4 experts per token.
  static double row_flops(double length) {
    double flops = 0;
    for (const double top_k : {1, 4}) {
      const HandCount count(std::round(length), top_k);
      flops += 2 * length * (count.frozen + count.scores + count.lora);
    }
    return flops / 2;
  }
  /// Makes the same run as experiment(), without weights and without a first state.
  static Experiment without_weights(std::string_view method) {
    auto table = config::Table::parse(testing::kSmallRun, "unit.toml");
    table.set(concat("model.path=\"", (root() / "model").string(), "\""));
    table.set(concat("method.name=\"", method, "\""));
    return make_experiment(settle(ExperimentConfig::read(table), {}), Purpose::kDryRun);
  }
  static double mean_prompt(const scoring::PreparedTask& prepared) {
    double tokens = 0;
    for (size_t i = 0; i < prepared.rows().size(); ++i) tokens += static_cast<double>(prepared.prompt(i).size());
    return tokens / static_cast<double>(prepared.rows().size());
  }
};

TEST_F(ComputedSpeed, AGeneratedAnswerDoesNotCountSinceItMayEndAtOnce) {
  const auto few = experiment("fedit", Purpose::kDryRun, "evaluate.max_new_tokens=2");
  const auto many = experiment("fedit", Purpose::kDryRun, "evaluate.max_new_tokens=60");
  EXPECT_DOUBLE_EQ(run_flops(few).per_scored_row, run_flops(many).per_scored_row);
}

TEST_F(ComputedSpeed, TasksCountByTheirRows) {
  const auto both = experiment("fedit", Purpose::kDryRun, "evaluate.limit=0",
                               {"evaluate.tasks=[\"builtin:facts\", \"builtin:tools\"]"});
  double flops = 0, rows = 0;
  for (const auto& [task, count] : test_row_counts(both.server.config)) {
    flops += count * row_flops(mean_prompt(*both.fabric.context.test_rows({.task = task, .limit = 32})));
    rows += count;
  }
  EXPECT_GT(rows, 2);
  EXPECT_NEAR(run_flops(both).per_scored_row, flops / rows, kExact * flops);
}

TEST_F(ComputedSpeed, ARowOfALikelihoodCountsWithItsTokensNotWithTheCutoff) {
  std::string rows;
  for (int i = 0; i < 6; ++i) rows += concat(R"({"prompt": "Is )", i, R"( even?", "completion": "yes, it is"})", '\n');
  write_file_atomic(root() / "train.jsonl", rows);
  write_file_atomic(root() / "test.jsonl", rows);
  constexpr double kCutoff = 600;
  const auto e =
      experiment("fedit", Purpose::kDryRun, "data.task=files",
                 {concat("data.files={ score = \"nll\", train = [\"", (root() / "train.jsonl").string(),
                         "\"], test = [\"", (root() / "test.jsonl").string(), "\"] }"),
                  "data.limit=0", "evaluate.limit=0", "clients.count=1", "clients.budgets=[1.0]", "data.cutoff=600"});
  const auto prepared = e.fabric.context.test_rows({.task = "files", .limit = 32});
  double tokens = 0;
  for (const auto& row : prepared->examples().examples) tokens += static_cast<double>(row.ids.size());
  ASSERT_EQ(prepared->examples().examples.size(), 6u);
  EXPECT_LT(tokens / 6, kCutoff / 3) << "rows must be much shorter than the cutoff for this test";
  EXPECT_NEAR(run_flops(e).per_scored_row, row_flops(tokens / 6), kExact * run_flops(e).per_scored_row);
}

TEST_F(ComputedSpeed, ATrainedTokenCostsAForwardAndABackwardPassByK) {
  const auto e = experiment("fedit", Purpose::kDryRun);
  double tokens = 0, rows = 0;
  for (const auto& shard : e.fabric.shards.examples)
    for (const auto& row : shard) tokens += static_cast<double>(row.ids.size()), ++rows;
  const auto flops = run_flops(e).per_trained_token;
  ASSERT_EQ(flops.size(), 3u);  // budgets 0.25, 0.5 and 1 of 4 experts
  for (const auto& [top_k, of_token] : flops) {
    const HandCount count(std::round(tokens / rows), static_cast<double>(top_k));
    const double expected = 4 * count.frozen + 6 * (count.scores + count.lora);  // models/cost.h
    EXPECT_NEAR(of_token, expected, kExact * expected) << top_k;
  }
}

TEST_F(ComputedSpeed, CountsTheWorkOfARunWithItsWeights) {
  for (const auto* method : {"fedit", "ub-smoe", "flexlora", "fed-sb"}) {
    auto dry = without_weights(method);
    auto real = experiment(method);
    const auto sites = dry.server.sites;
    const auto counted = counted_work(dry), expected = work_of(real, beginning(real).state);
    EXPECT_EQ(counted.tokens, expected.tokens) << method;
    EXPECT_EQ(counted.scored_rows, expected.scored_rows) << method;
    ASSERT_EQ(dry.server.sites.size(), sites.size());
    for (const auto& [name, site] : sites) {
      EXPECT_EQ(dry.server.sites.at(name).in, site.in) << name;
      EXPECT_EQ(dry.server.sites.at(name).out, site.out) << name;
    }
  }
}

TEST(ComputedSpeeds, FlopsOfARunAreThoseOfItsTokensAndRows) {
  const RunWork work{.tokens = {{1, 10}, {2, 100}, {3, 1000}}, .scored_rows = 7};
  const RunFlops flops{.per_trained_token = {{1, 2}, {3, 5}}, .per_scored_row = 11};
  // K = 2 has no figure of its own: that of the next larger K is used.
  EXPECT_DOUBLE_EQ(foreseen_flops(work, flops), 10 * 2 + 100 * 5 + 1000 * 5 + 7 * 11);
}

TEST(ComputedSpeeds, AreTheProductSpeedOverTheFlops) {
  const auto speeds = computed_speeds({.per_trained_token = {{1, 4e9}, {8, 2e10}}, .per_scored_row = 3e10}, 6e11);
  EXPECT_DOUBLE_EQ(speeds.tokens_per_second.at(1), 150);
  EXPECT_DOUBLE_EQ(speeds.tokens_per_second.at(8), 30);
  EXPECT_DOUBLE_EQ(speeds.seconds_per_row, 0.05);
  EXPECT_EQ(speeds.seconds_to_start, 0);
}

TEST(ComputedSpeeds, WeightsAboveTwoGibibytesAreNotLoadedForAForecast) {
  const testing::TemporaryFolder folder;
  write_file_atomic(folder.path() / "model.safetensors", "x");
  fs::resize_file(folder.path() / "model.safetensors", uintmax_t{2} << 30);  // a sparse file
  EXPECT_FALSE(is_too_large_to_measure(folder.path()));
  fs::resize_file(folder.path() / "model.safetensors", (uintmax_t{2} << 30) + 1);
  EXPECT_TRUE(is_too_large_to_measure(folder.path()));
}

}  // namespace
}  // namespace evenkeel::fed
