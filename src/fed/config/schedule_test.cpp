#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

using Scheduled = testing::SmallRun;

train::LocalReport trained(Experiment& e, const Task& task) {
  return report_of<train::LocalReport>(Client(e.fabric.context, e.fabric.shards.examples[0]).answer(task));
}

Task task_of_round(Experiment& e, methods::ServerState state, int64_t round) {
  state.round = round;
  return e.server.training_task(state, e.server.clients[0], e.server.draw(state));
}

TEST_F(Scheduled, ATaskContainsTheRateOfItsRound) {
  auto scheduled = experiment("fedit", Purpose::kTrain, "train.schedule.kind=\"linear\"",
                              {"train.rounds=3", "train.schedule.final_ratio=0.5"});
  auto constant = experiment("fedit", Purpose::kTrain, "train.optimizer.lr=7.5e-3");
  auto other = experiment("fedit", Purpose::kTrain, "train.optimizer.lr=1.0");
  const auto state = beginning(scheduled).state;
  const auto task = task_of_round(scheduled, state, 1);
  const auto crossed = std::get<Task>(from_bytes(to_bytes(task), "a task"));
  EXPECT_DOUBLE_EQ(std::get<Train>(crossed.ask).lr.value_or(0), 7.5e-3);
  const auto expected = trained(constant, task_of_round(constant, state, 1));
  EXPECT_EQ(std::get<Train>(task_of_round(constant, state, 1).ask).lr, std::nullopt);
  EXPECT_EQ(trained(scheduled, task).loss_sum, expected.loss_sum);
  EXPECT_EQ(trained(other, crossed).loss_sum, expected.loss_sum);
  EXPECT_NE(trained(scheduled, task_of_round(scheduled, state, 2)).last_loss, expected.last_loss);
}

TEST_F(Scheduled, TheServerDividesByTheRateOfTheAggregatedRound) {
  const auto e = experiment("ub-smoe", Purpose::kTrain, "train.schedule.kind=\"cosine\"",
                            {"train.rounds=3", "train.schedule.warmup_rounds=1", "train.schedule.final_ratio=0.2"});
  EXPECT_DOUBLE_EQ(e.server.view(0).lr, 1e-2);
  EXPECT_DOUBLE_EQ(e.server.view(1).lr, 1e-2);
  EXPECT_NEAR(e.server.view(2).lr, 2e-3, 1e-15);
}

TEST_F(Scheduled, WarmUpCannotBeLongerThanTheRun) {
  auto table = config::Table::parse(testing::kSmallRun, "unit.toml");
  table.set("train.schedule.warmup_rounds=3");
  const auto refusal = testing::refusal([&] { ExperimentConfig::read(table); });
  EXPECT_NE(refusal.find("train.schedule.warmup_rounds is 3, allowed: 0 .. train.rounds = 2"), std::string::npos)
      << refusal;
}

}  // namespace
}  // namespace evenkeel::fed
