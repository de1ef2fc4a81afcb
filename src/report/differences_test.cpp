#include "comparison/differences.h"

#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "base/testing.h"
#include "fed/config/experiment_config.h"
#include "records/run_settings.h"
#include "report/page.h"

namespace evenkeel::report {
namespace {

using records::RunRecords, records::test_rows_of, records::differing_key;

/// Makes a run of two rounds with settings on top of the defaults, scored after round 2.
RunRecords run_with(const std::string& label, const std::vector<std::string>& settings) {
  auto table = config::Table::parse("[method]\nname = \"fedit\"\n", "test");
  table.set("train.rounds=2");
  for (const auto& setting : settings) table.set(setting);
  auto asked = fed::ExperimentConfig::read(table);
  asked.output.dir = label;
  const auto config = fed::settle(std::move(asked), {.threads = 1, .products = {}});
  RunRecords run;
  run.label = label;
  run.set_config(config);
  run.manifest = Json::object();
  run.total_rounds = config->train.rounds;
  run.evaluations.push_back({2, "fedit", {.task = "t", .rows = 4, .questions = 4}});
  return run;
}

using Lines = std::vector<std::string>;

/// Returns each difference as "key | value | value".
Lines unlike(const std::vector<RunRecords>& runs, const std::vector<std::string>& free = {}) {
  Lines found;
  for (const auto& difference : comparison::differences(runs, free)) {
    std::string line = difference.what;
    for (const auto& side : difference.sides) line += concat(" | ", side.value);
    found.push_back(std::move(line));
  }
  return found;
}

TEST(RunSettings, ThatDifferAreNamedKeyByKey) {
  const auto a = run_with("a", {});
  const auto b = run_with("b", {"data.files.split_seed=7", "lora.rank=16", "data.limit=20", "evaluate.limit=5"});
  EXPECT_EQ(unlike({a, b}), (Lines{"data.files.split_seed | 42 | 7", "data.limit | 0 | 20", "evaluate.limit | 0 | 5",
                                   "lora.rank | 20 | 16"}));
  EXPECT_EQ(unlike({a, b}, {"data", "lora.rank", "evaluate.limit"}), Lines{"lora.rank | 20 | 16"})
      << "a key that changes the function is named although it may differ";
  const std::vector<RunRecords> both{a, b};
  EXPECT_NE(report_page(both).find(R"({"what":"lora.rank")"), std::string::npos);
  auto arms = comparison::arms_of(both);
  arms.free = {"data"};
  EXPECT_EQ(report_page(arms).find(R"({"what":"data.limit")"), std::string::npos);
}

TEST(RunSettings, ThatDifferBehindTheirFirstCharactersAreNamed) {
  const std::string options(90, 'x');
  const auto run_of = [&](const std::string& label, const std::string& last) {
    return run_with(label, {"data.files.score=choice", concat("data.files.options=['", options, last, "', 'no']")});
  };
  const auto found = unlike({run_of("a", "1"), run_of("b", "2")});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].find("data.files.options | "), 0u);
  EXPECT_TRUE(unlike({run_of("a", "1"), run_of("b", "1")}).empty());
}

TEST(RunSettings, BudgetsOfClientsAndOfEvaluationsAreNamed) {
  const auto a = run_with("a", {"clients.count=2", "clients.budgets=[0.5,1.0]", "evaluate.budgets=[0.5,1.0]"});
  const auto b = run_with("b", {"clients.count=2", "clients.budgets=[1.0,1.0]", "evaluate.budgets=[1.0]"});
  EXPECT_EQ(unlike({a, b}),
            (Lines{"clients.budgets | [0.5, 1.0] | [1.0, 1.0]", "evaluate.budgets | [0.5, 1.0] | [1.0]"}));
}

TEST(RunSettings, OfTrainingAreNamedSoThatNoMethodIsCreditedWithThem) {
  const auto a = run_with("a", {"train.optimizer.lr=0.001"});
  const auto b = run_with("b", {"method.name=ffa-lora", "train.optimizer.lr=0.5", "train.local_epochs=3"});
  EXPECT_EQ(unlike({a, b}), (Lines{"train.local_epochs | 0.4 | 3.0", "train.optimizer.lr | 0.001 | 0.5"}));
  EXPECT_EQ(unlike({a, b}, {"train"}), Lines{});
  const auto private_one = run_with("c", {"train.optimizer.lr=0.001", "privacy.unit=client", "privacy.delta=1e-5",
                                          "privacy.clip=0.5", "privacy.noise_multiplier=1.0"});
  EXPECT_EQ(unlike({a, private_one}, {"privacy"}), Lines{"privacy.unit | \"off\" | \"client\""})
      << "noise changes what is trained, also where a study lets it differ";
}

TEST(RunSettings, OfAnotherMethodMayDifferWithTheRanksThatFollowFromIt) {
  const auto run_of = [](const std::string& setting) {
    return run_with(setting, {"clients.count=2", "clients.budgets=[0.125,1.0]", setting});
  };
  const auto a = run_of("seed=1");
  EXPECT_EQ(unlike({a, run_of("method.name=flora")}), Lines{"seeds | 1 | 42"});
  EXPECT_EQ(unlike({a, run_of("seed=2")}), Lines{});
  const auto ranked =
      unlike({a, run_with("b", {"seed=1", "clients.count=2", "clients.budgets=[0.125,1.0]", "clients.ranks=[3,5]"})});
  ASSERT_EQ(ranked.size(), 1u) << "ranks that do not follow from the method";
  EXPECT_EQ(ranked[0].find("clients.ranks | "), 0u) << ranked[0];
}

TEST(RunSettings, TwoSourcesOfOneMethodInPythonAreNamed) {
  const auto run_of = [](const std::string& label, const std::string& method, const std::string& sha256) {
    auto run = run_with(label, {});
    run.method = method;
    run.manifest["method"] = {{"sha256", sha256}};
    return run;
  };
  const auto a = run_of("a", "mine", "9c741f85aa11bb22");
  EXPECT_EQ(unlike({a, run_of("b", "mine", "c362f7aa11bb22cc")}),
            Lines{"source of mine | 9c741f85aa11 | c362f7aa11bb"});
  EXPECT_EQ(unlike({a, run_of("b", "other", "c362f7aa11bb22cc"), run_with("c", {})}), Lines{});
}

TEST(RunSettings, RoundsAreNamedAndWhetherARunHasEnded) {
  const auto a = run_with("a", {}), six = run_with("six", {"train.rounds=6"});
  EXPECT_EQ(unlike({a, six}), (Lines{"scored after | all rounds | round 2 of 6, unfinished", "train.rounds | 2 | 6"}));
  auto ended = six, stopped = six;
  ended.evaluations[0].round = 6;
  stopped.total_rounds = 2;
  stopped.stopped_early = true;
  EXPECT_EQ(unlike({six, ended}), Lines{"scored after | round 2 of 6, unfinished | all rounds"});
  EXPECT_EQ(unlike({ended, stopped}), Lines{"scored after | all rounds | round 2, stopped early"});
}

TEST(RunSettings, TestRowsAreOthersIfAKeyOrAFileOfRowsDiffers) {
  const auto a = test_rows_of(run_with("a", {}));
  const auto key = [&](const std::vector<std::string>& settings) {
    return differing_key(a, test_rows_of(run_with("b", settings)));
  };
  EXPECT_FALSE(key({}));
  EXPECT_FALSE(key({"data.limit=20", "data.partition.kind=iid", "lora.rank=16"}));
  EXPECT_EQ(key({"data.files.split_seed=7"}), "data.files.split_seed");
  EXPECT_EQ(key({"evaluate.limit=7"}), "evaluate.limit");
  auto filed = run_with("b", {});
  filed.manifest = {{"files", {{{"path", "/d/test.jsonl"}, {"sha256", "ab"}}}}};
  EXPECT_EQ(differing_key(a, test_rows_of(filed)), "file test.jsonl");
}

TEST(RunSettings, TestRowsAreTheSameIfTrainingFilesAloneDiffer) {
  const auto rows_of = [&](const std::string& train, const std::string& digest, const std::string& test) {
    auto run = run_with("b", {"data.task=files", concat("data.files.train=['/d/", train, "']"),
                              concat("data.files.test=['/d/", test, "']")});
    run.manifest = {
        {"files", {{{"path", "/d/" + train}, {"sha256", digest}}, {{"path", "/d/" + test}, {"sha256", "tt"}}}}};
    return test_rows_of(run);
  };
  const auto a = rows_of("x.jsonl", "1", "t.jsonl");
  EXPECT_EQ(a.at("file t.jsonl"), "tt");
  EXPECT_FALSE(differing_key(a, rows_of("x.jsonl", "2", "t.jsonl")));
  EXPECT_FALSE(differing_key(a, rows_of("y.jsonl", "3", "t.jsonl")));
  EXPECT_EQ(differing_key(a, rows_of("x.jsonl", "1", "u.jsonl")), "data.files.test");
  EXPECT_EQ(differing_key(a, rows_of("t.jsonl", "1", "t.jsonl")), "file t.jsonl") << "one name, two files";
}

TEST(RunSettings, FilesOfOneNameAreToldApartByTheirFolders) {
  const auto rows_of = [](const std::string& train, const std::string& digest, const std::string& tested) {
    auto run = run_with(
        "b", {"data.task=files", concat("data.files.train=['", train, "']"), "data.files.test=['/te/r.jsonl']"});
    run.manifest = {{"files", {{{"path", train}, {"sha256", digest}}, {{"path", "/te/r.jsonl"}, {"sha256", tested}}}}};
    return test_rows_of(run);
  };
  const auto a = rows_of("/x1/r.jsonl", "1", "tt");
  EXPECT_EQ(a.at("file r.jsonl"), "tt") << "training rows are no test rows";
  EXPECT_FALSE(differing_key(a, rows_of("/x2/r.jsonl", "2", "tt")));
  EXPECT_EQ(differing_key(a, rows_of("/x1/r.jsonl", "1", "uu")), "file r.jsonl");
}

TEST(RunSettings, RowsOfAMovedRunAreThoseOfItsSettings) {
  const testing::TemporaryFolder folder;
  make_folders(folder.path() / "rows");
  write_file_atomic(folder.path() / "rows/train-1.jsonl", "");
  auto run = run_with("b", {"data.task=files", "data.files.test=['/te/r.jsonl']",
                            concat("data.files.train=['", (folder.path() / "rows/train-1.jsonl").string(), "']")});
  run.folder = folder.path();
  run.manifest = {{"files", {{{"path", "/gone/rows/train-1.jsonl"}, {"sha256", "1"}}}}};
  EXPECT_FALSE(test_rows_of(run).contains("file train-1.jsonl"));
}

}  // namespace
}  // namespace evenkeel::report
