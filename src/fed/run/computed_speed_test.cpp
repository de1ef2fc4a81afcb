#include "fed/run/computed_speed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fed/testing.h"
#include "models/cost.h"

namespace evenkeel::fed {
namespace {

class ComputedSpeed : public testing::SmallRun {
 protected:
  /// Returns the FLOPs of a forward pass over a row, mean over evaluate.budgets: 1 and 4 of 4 experts per token.
  static double row_flops(const Experiment& e, double length) {
    double flops = 0;
    for (const int64_t top_k : {1, 4}) {
      const models::CostShape shape{.tokens = 1, .length = std::llround(length), .top_k = top_k};
      flops += 2 * length * models::total(models::forward_cost(e.server.model, shape, e.server.sites, 3));
    }
    return flops / 2;
  }
};

TEST_F(ComputedSpeed, AGeneratedAnswerDoesNotCountSinceItMayEndAtOnce) {
  const auto few = experiment("fedit", Purpose::kDryRun, "evaluate.max_new_tokens=2");
  const auto many = experiment("fedit", Purpose::kDryRun, "evaluate.max_new_tokens=60");
  EXPECT_DOUBLE_EQ(run_flops(few).of_row, run_flops(many).of_row);
}

TEST_F(ComputedSpeed, TasksCountByTheirRows) {
  const auto both = experiment("fedit", Purpose::kDryRun, "evaluate.limit=0",
                               {"evaluate.tasks=[\"builtin:facts\", \"builtin:tools\"]"});
  double flops = 0, rows = 0;
  for (const auto& [task, count] : test_row_counts(both.server.config)) {
    const auto prepared = both.fabric.context.test_rows({.task = task, .limit = 32});
    double tokens = 0;
    for (size_t i = 0; i < prepared->rows().size(); ++i) tokens += static_cast<double>(prepared->prompt(i).size());
    flops += count * row_flops(both, tokens / static_cast<double>(prepared->rows().size()));
    rows += count;
  }
  EXPECT_GT(rows, 2);
  EXPECT_NEAR(run_flops(both).of_row, flops / rows, 1e-9 * flops);
}

TEST_F(ComputedSpeed, ARowOfALikelihoodCountsWithItsTokensNotWithTheCutoff) {
  std::string rows;
  for (int i = 0; i < 6; ++i) rows += concat(R"({"prompt": "Is )", i, R"( even?", "completion": "yes, it is"})", '\n');
  write_file_atomic(root() / "train.jsonl", rows);
  write_file_atomic(root() / "test.jsonl", rows);
  const auto e =
      experiment("fedit", Purpose::kDryRun, "data.task=files",
                 {concat("data.files={ score = \"nll\", train = [\"", (root() / "train.jsonl").string(),
                         "\"], test = [\"", (root() / "test.jsonl").string(), "\"] }"),
                  "data.limit=0", "evaluate.limit=0", "clients.count=1", "clients.budgets=[1.0]", "data.cutoff=600"});
  const auto prepared = e.fabric.context.test_rows({.task = "files", .limit = 32});
  double tokens = 0;
  for (const auto& row : prepared->examples().examples) tokens += static_cast<double>(row.ids.size());
  ASSERT_EQ(prepared->examples().examples.size(), 6u);
  EXPECT_LT(tokens / 6, 200);
  EXPECT_NEAR(run_flops(e).of_row, row_flops(e, tokens / 6), 1e-6 * run_flops(e).of_row);
}

}  // namespace
}  // namespace evenkeel::fed
