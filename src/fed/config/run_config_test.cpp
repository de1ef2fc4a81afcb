#include "fed/config/run_config.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/testing.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kOwnRows = R"(seed = 7
threads = 3
[model]
compute_dtype = "float32"
[data]
task = "files"
files = { held_out = 0.25 }
[client_profiles.phone]
tokens_per_second = [5000]
[clients]
profiles = { values = ["phone"] }
[[clients.client]]
name = "north"
data = "north.jsonl"
budget = 0.25
[[clients.client]]
data = "other.jsonl"
test = ["a.jsonl", "b.jsonl"]
rank = 5
[[clients.client]]
data = "last.jsonl"
held_out = 0
)";

ExperimentConfig asked_for(std::string_view text) {
  return ExperimentConfig::read(config::Table::parse(text, "test.toml"));
}

TEST(RunConfig, PlansEachClientWithItsBudgetRankMachineAndRows) {
  const auto config = settle(asked_for(kOwnRows), {});
  ASSERT_EQ(config.plans().size(), 3u);
  EXPECT_EQ(config.plan(0).budget, 0.25);
  EXPECT_EQ(config.plan(1).rank, 5);
  EXPECT_EQ(config.plan(2).machine, "phone");
  EXPECT_EQ(config.plan(0).rows->who, "client 0 (north)");
  EXPECT_EQ(config.plan(1).rows->test, (std::vector<std::string>{"a.jsonl", "b.jsonl"}));
  const std::vector<bool> tests = {config.plan(0).tests(), config.plan(1).tests(), config.plan(2).tests()};
  EXPECT_EQ(tests, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(config.own_rows(1, 9).files.clients.front().train, std::vector<std::string>{"other.jsonl"});
  EXPECT_EQ(config.own_rows(1, 9).limit, 9);
  EXPECT_EQ(config.rows().files.clients.size(), 3u);
  EXPECT_EQ(config.rows().seed, 7u);
}

TEST(RunConfig, LeavesOutTheRowsOfAClientAfterItsLastRound) {
  auto asked = asked_for(kOwnRows);
  asked.clients.client[1].until = 2;
  const auto config = settle(asked, {});
  EXPECT_EQ(config.left_out_after(2), std::vector<int64_t>());
  EXPECT_EQ(config.left_out_after(3), std::vector<int64_t>{1});
  const auto rows = config.rows_to_score({}, 0, config.left_out_after(3));
  ASSERT_EQ(rows.files.clients.size(), 2u);
  EXPECT_EQ(rows.files.clients[1].train, std::vector<std::string>{"last.jsonl"});
  EXPECT_EQ(config.rows_to_score(1, 0, {1}).files.clients.front().train, std::vector<std::string>{"other.jsonl"});
}

TEST(RunConfig, OfClientsThatShareTheRowsHasNoRowsInItsPlans) {
  const auto config = settle(asked_for("[clients]\ncount = 5\n"), {});
  ASSERT_EQ(config.plans().size(), 5u);
  for (const auto& plan : config.plans()) EXPECT_FALSE(plan.rows || plan.tests() || !plan.machine.empty());
}

TEST(RunConfig, AChangeMakesAnotherConfigWithItsOwnPlans) {
  const auto config = settle(asked_for(kOwnRows), {});
  const auto other = config.with([](ExperimentConfig& values) {
    values.clients.budgets.list[2] = 1.0;
    values.data.files.held_out = 0;
    values.evaluate.limit = 4;
  });
  EXPECT_EQ(other.plan(2).budget, 1.0);
  EXPECT_FALSE(other.plan(0).tests());
  EXPECT_EQ(other->evaluate.limit, 4);
  EXPECT_EQ(config.plan(2).budget, 0.5);
  EXPECT_TRUE(config.plan(0).tests());
  EXPECT_EQ(config->evaluate.limit, 0);
}

TEST(RunConfig, ItsTextIsThatOfASettledConfig) {
  const auto config = settle(asked_for(kOwnRows), {});
  const auto again = RunConfig::of_settled(asked_for(config->text()), "config.toml");
  EXPECT_EQ(again->text(), config->text());
  EXPECT_EQ(settle(*again, {.threads = 64, .products = {}})->text(), config->text()) << "nothing is left to settle";
}

TEST(RunConfig, HasNoOpenValue) {
  const auto settled = *settle(asked_for(kOwnRows), {});
  using Change = std::pair<std::string, void (*)(ExperimentConfig&)>;
  const std::vector<Change> changes = {
      {"threads", [](ExperimentConfig& values) { values.threads = 0; }},
      {"model.device", [](ExperimentConfig& values) { values.model.device = "auto"; }},
      {"model.engine", [](ExperimentConfig& values) { values.model.engine = EngineChoice::kAuto; }},
      {"model.graphs", [](ExperimentConfig& values) { values.model.graphs = GraphsChoice::kAuto; }},
      {"model.cuda_kernels", [](ExperimentConfig& values) { values.model.cuda_kernels = "auto"; }},
      {"model.compute_dtype", [](ExperimentConfig& values) { values.model.compute_dtype = ComputeDtype::kAuto; }},
      {"data.date", [](ExperimentConfig& values) { values.data.date = "today"; }},
      {"clients.budgets", [](ExperimentConfig& values) { values.clients.budgets = {}; }},
      {"clients.ranks", [](ExperimentConfig& values) { values.clients.ranks = {}; }},
      {"evaluate.tasks", [](ExperimentConfig& values) { values.evaluate.tasks = {"builtin"}; }},
      {"evaluate.tasks", [](ExperimentConfig& values) { values.evaluate.tasks.clear(); }}};
  for (const auto& [key, change] : changes) {
    auto open = settled;
    change(open);
    EXPECT_EQ(testing::refusal([&] { RunConfig::of_settled(open, "runs/x/config.toml"); }),
              concat("[config] runs/x/config.toml: ", key, " is open, but a run's config names every value"));
    EXPECT_EQ(testing::refusal([&] { settle(asked_for(kOwnRows), {}).with(change); }),
              concat("[internal] a change of a settled config leaves ", key, " open"));
  }
}

}  // namespace
}  // namespace evenkeel::fed
