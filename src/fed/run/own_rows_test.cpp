// Tests clients with own rows: what they train on, and the scores of each at its budget.
#include <gtest/gtest.h>

#include <set>

#include "fed/config/client_rows.h"
#include "fed/run/state_evaluation.h"
#include "fed/run/stored_records.h"
#include "fed/run/training_run.h"
#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

std::string rows_of(std::string_view subject, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += concat(R"({"prompt": "Is )", subject, ' ', i, R"( even?", "completion": ")", i % 2 == 0 ? "yes" : "no",
                   "\"}\n");
  return text;
}

class OwnRows : public testing::SmallRun {
 protected:
  OwnRows() {
    write_file_atomic(folder_.path() / "a1.jsonl", rows_of("ant", 3));
    write_file_atomic(folder_.path() / "a2.jsonl", rows_of("ape", 2));
    write_file_atomic(folder_.path() / "a-test.jsonl", rows_of("auk", 3));
    write_file_atomic(folder_.path() / "b.jsonl", rows_of("bee", 8));
    write_file_atomic(folder_.path() / "c.jsonl", rows_of("cat", 4));
  }

  std::string path(std::string_view name) const { return (folder_.path() / name).string(); }

  /// Client "a" has two files and a test file, "b" holds out a quarter, and the third has no test rows. The last two
  /// have the same budget.
  std::string clients() const {
    return concat(R"(clients.client=[{ name = "a", budget = 0.25, data = ")", path("a?.jsonl"), R"(", test = ")",
                  path("a-test.jsonl"), R"(" }, { name = "b", budget = 0.5, held_out = 0.25, data = ")",
                  path("b.jsonl"), R"(" }, { budget = 0.5, held_out = 0.0, data = [")", path("c.jsonl"), R"("] }])");
  }

  Experiment own(std::string_view setting = "evaluate.per_client=true") const {
    return experiment("fedit", Purpose::kTrain, "clients.budgets=[]",
                      {"data.task=files", "data.limit=0", "data.files={ score = \"nll\", held_out = 0.0 }",
                       "evaluate.limit=0", clients(), setting});
  }

  testing::TemporaryFolder folder_;
};

TEST_F(OwnRows, AreTheTrainingRowsOfEachClient) {
  const auto e = own();
  const auto& shards = e.fabric.shards;
  ASSERT_EQ(shards.examples.size(), 3u);
  EXPECT_EQ(shards.examples[0].size(), 5u);
  EXPECT_EQ(shards.examples[1].size(), 6u);
  EXPECT_EQ(shards.examples[2].size(), 4u);
  EXPECT_EQ(shards.rows[0], (std::vector<FileRow>{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}})) << "numbers of each file";
  EXPECT_EQ(shards.rows[2].front().file, 3u);
  std::set<int64_t> of_b;
  for (const auto& row : shards.rows[1]) EXPECT_TRUE(of_b.insert(row.row).second && row.file == 2u) << row.row;
  for (const auto& row : shards.held_out) EXPECT_TRUE(of_b.insert(row.row).second && row.file == 2u) << row.row;
  EXPECT_EQ(of_b, (std::set<int64_t>{0, 1, 2, 3, 4, 5, 6, 7})) << "every row of the file once, trained or held out";
  EXPECT_EQ(shards.files_of[0], (std::vector<std::string>{path("a1.jsonl"), path("a2.jsonl")}));
  EXPECT_EQ(shards.files.size(), 4u);
  EXPECT_EQ(e.server.clients[1].examples, 6);
}

TEST_F(OwnRows, TheLimitAppliesPerClient) {
  const auto e = own("data.limit=4");
  for (const auto& rows : e.fabric.shards.examples) EXPECT_EQ(rows.size(), 4u);
}

TEST_F(OwnRows, TheLimitOfTestRowsAppliesPerClient) {
  auto e = own("evaluate.limit=1");
  const auto scores = evaluate_state(e.server, e.fabric, beginning(e).state);
  ASSERT_FALSE(scores.empty());
  for (const auto& score : scores) EXPECT_EQ(score.rows, 2) << "one of each client that has test rows";
}

TEST_F(OwnRows, AreScoredPerClientAndAllRowsOncePerBudget) {
  auto e = own();
  const auto state = beginning(e).state;
  int64_t forwards = 0;
  const auto count = [&](const std::string&, double, int64_t done, int64_t rows) { forwards += done == rows; };
  const auto scores = evaluate_state(e.server, e.fabric, state, {.on_progress = count});
  // The order is: budgets 0.25 and 1 on all rows; "a" on own and all rows (as budget 0.25); "b" likewise; the third on
  // all rows (as "b").
  ASSERT_EQ(scores.size(), 7u);
  EXPECT_EQ(forwards, 2 + 1 + 2);
  std::vector<std::tuple<int64_t, scoring::RowsOf, int64_t>> found;
  for (const auto& score : scores)
    if (score.client) found.emplace_back(score.client->id, score.client->rows, score.rows);
  EXPECT_EQ(found, (std::vector<std::tuple<int64_t, scoring::RowsOf, int64_t>>{{0, scoring::RowsOf::kOwn, 3},
                                                                               {0, scoring::RowsOf::kAll, 5},
                                                                               {1, scoring::RowsOf::kOwn, 2},
                                                                               {1, scoring::RowsOf::kAll, 5},
                                                                               {2, scoring::RowsOf::kAll, 5}}));
  EXPECT_EQ(scores[3].nll, scores[0].nll);
  EXPECT_EQ(scores[6].nll, scores[5].nll);
  EXPECT_EQ(scores[2].client->name, "a");
  EXPECT_FALSE(scores[6].client->name);
  // The answers of all rows are the clients' answers together.
  const auto own_tokens = scores[2].answer_tokens + scores[4].answer_tokens;
  EXPECT_EQ(scores[5].answer_tokens, own_tokens);
}

/// A run of one round. Its two clients have budget 1 and three and eight test rows, and scores of single rows are kept.
RunRequest request_of_items(const fs::path& folder, const fs::path& model) {
  write_file_atomic(folder / "run.toml", testing::kSmallRun);
  const auto client = [&](std::string_view data, std::string_view test) {
    return concat("{ budget = 1.0, data = \"", (folder / data).string(), "\", test = \"", (folder / test).string(),
                  "\" }");
  };
  return {.file = folder / "run.toml",
          .settings = {concat("model.path=\"", model.string(), "\""), "method.name=fedit", "data.task=files",
                       "data.limit=0", "data.files={ score = \"nll\", held_out = 0.0 }", "clients.count=2",
                       "clients.budgets=[]", "train.rounds=1", "evaluate.limit=0", "evaluate.budgets=[1.0]",
                       "evaluate.per_client=true", "evaluate.items=true",
                       concat("clients.client=[", client("a1.jsonl", "a-test.jsonl"), ", ",
                              client("c.jsonl", "b.jsonl"), "]")},
          .out = (folder / "run").string()};
}

TEST_F(OwnRows, AreKeptAsItemsOfEachClientBesideThoseOfAllRows) {
  auto run = begin_run(request_of_items(folder_.path(), root() / "model"));
  const auto scores = complete_run(run.experiment.server, run.experiment.fabric, run.folder);
  const auto lines = read_items(run.folder.path(), 1);
  ASSERT_EQ(lines.size(), 3u) << "of all rows and of each client's own";
  EXPECT_FALSE(record::write(lines[0]).contains("client"));
  EXPECT_EQ(scores.at(0).rows, 11);
  EXPECT_EQ(std::ssize(lines[0].items.log_likelihood), scores.at(0).rows);
  EXPECT_EQ(lines[1].client, (scoring::ClientOfScore{.id = 0, .rows = scoring::RowsOf::kOwn}));
  EXPECT_EQ(lines[1].items.log_likelihood.size(), 3u);
  EXPECT_EQ(lines[2].client, (scoring::ClientOfScore{.id = 1, .rows = scoring::RowsOf::kOwn}));
  EXPECT_EQ(lines[2].items.log_likelihood.size(), 8u);
}

TEST_F(OwnRows, ItemsOfScoresThatWereNotRecordedAreReplaced) {
  auto run = begin_run(request_of_items(folder_.path(), root() / "model"));
  complete_run(run.experiment.server, run.experiment.fabric, run.folder);
  const auto scores = run.folder.path() / "evaluations.jsonl", items = run.folder.path() / "items/round-1.jsonl";
  const auto whole = read_file(scores), all = read_file(items);
  // As if the process had ended between the items of the second score and its line, and in a later line of items.
  write_file_atomic(scores, whole.substr(0, whole.find('\n') + 1));
  write_file_atomic(items, all.substr(0, all.size() - 20));
  complete_run(run.experiment.server, run.experiment.fabric, run.folder);
  EXPECT_EQ(read_file(items), all);
  EXPECT_EQ(read_items(run.folder.path(), 1).size(), 3u);
}

TEST_F(OwnRows, AreNotScoredWithoutTheKey) {
  auto e = own("evaluate.per_client=false");
  EXPECT_EQ(evaluate_state(e.server, e.fabric, beginning(e).state).size(), 2u);
}

TEST_F(OwnRows, ReadingAOfARankMethodCutsToTheClientsRank) {
  auto e = experiment("flexlora", Purpose::kTrain, "evaluate.per_client=true",
                      {"clients.budgets=[]", "clients.ranks=[1, 2, 3]", "data.task=files", "data.limit=0",
                       "data.files={ score = \"nll\" }", clients()});
  const auto points = client_points(e.server, 0);
  ASSERT_EQ(points.size(), 10u);  // two readings; the third client has no test rows
  const auto cut = e.server.evaluator({}, points[0]), whole = e.server.evaluator({}, points[2]);
  EXPECT_EQ(points[0].rank_eval_mode, "a");
  EXPECT_EQ(cut.rank, 1);
  EXPECT_EQ(cut.top_k, 4);
  EXPECT_EQ(cut.id, 0);
  EXPECT_EQ(whole.rank, 3);
  EXPECT_EQ(whole.top_k, 1);
  EXPECT_EQ(e.server.evaluator({}, points[1]).id, kEvaluator);
}

TEST_F(OwnRows, ErrorsInARowNameClientFileAndLine) {
  write_file_atomic(folder_.path() / "b.jsonl", rows_of("bee", 2) + "{\"prompt\": \"q\"}\n");
  const auto said = testing::refusal([&] { own(); });
  EXPECT_NE(said.find(concat("client 1 (b): ", path("b.jsonl"), ":3")), std::string::npos) << said;
}

}  // namespace
}  // namespace evenkeel::fed
