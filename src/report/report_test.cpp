#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>

#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/number_text.h"
#include "base/testing.h"
#include "records/testing.h"
#include "report/differences_text.h"
#include "report/page.h"
#include "report/tables.h"
#include "report/time_table.h"

namespace evenkeel::report {
namespace {

std::string table_text(std::span<const records::RunRecords> runs, std::string_view name) {
  return text_of(tables(runs, name));
}

OrderedJson round_line(int64_t round, double loss) {
  fed::RoundRecord record;
  record.round = round;
  record.method = "fedit";
  record.participants = 2;
  record.loss = loss;
  record.steps = 4, record.tokens = 1200;
  record.bytes_up = 1500000, record.bytes_down = 2500000;
  record.bytes_up_parts = {{"adapters", 1200000}, {"counts", 300000}};
  record.bytes_down_parts = {{"adapters", 1200000}, {"phi", 1300000}};
  record.experts_per_token = 4.5;
  record.flops = 3.25e12;
  record.metrics = {{"pg_share", 0.25}};
  auto& experts = record.experts.emplace();
  experts.layers = {"model.layers.0.mlp", "model.layers.1.mlp"};
  experts.utilization = {{0.123456, 0.5, 0.0}, {0.2, 0.3, 0.123449}};
  experts.dead_experts = {1, 0};
  experts.entropy_mean = 0.75, experts.gini_mean = 0.25;
  auto& client = record.clients.emplace_back();
  client.budget = 0.125, client.top_k = 1, client.rank = 20, client.examples = 64;
  client.steps = 2, client.tokens = 600, client.loss = 1.5;
  client.bytes_up = 700000, client.bytes_down = 800000;
  client.experts_per_token = 1;
  client.flops = 1e12;
  return record::write(record);
}

OrderedJson evaluation_line(int64_t round, const std::string& task, double budget, double accuracy) {
  OrderedJson line = {{"round", round}, {"method", "fedit"}};
  line.update(record::write(scoring::TaskScore{.task = task,
                                               .budget = budget,
                                               .top_k = 1,
                                               .rows = 40,
                                               .questions = 38,
                                               .accuracy = accuracy,
                                               .accuracy_cased = accuracy,
                                               .accuracy_lowercase = accuracy,
                                               .invalid_rate = 0.1,
                                               .accuracy_valid = accuracy / 0.9,
                                               .accuracy_likelihood = 0.4,
                                               .chance = 0.25,
                                               .majority = 0.3,
                                               .seconds = 1}));
  return line;
}

/// Returns the data that the scripts of a page read.
Json data_of(const std::string& page) {
  const std::string open = "id=\"data\">";
  const auto start = page.find(open) + open.size();
  return parse_json(std::string_view(page).substr(start, page.find("</script>", start) - start), "page");
}

class Report : public ::testing::Test {
 protected:
  Report() { make_run("one", 0.5); }

  void make_run(const std::string& name, double accuracy) const {
    const auto run = folder_ / name;
    testing::write_run(
        run, "name = \"" + name + "\"\nseed = 7\n[model]\npath = \"</script><b>\"\n[method]\nname = \"fedit\"\n");
    for (int64_t round : {1, 2}) append_sealed(run / "rounds.jsonl", round_line(round, 2.0 / round));
    for (const auto* task : {"alpha", "beta"})
      for (const double budget : {1.0, 0.125}) {
        append_sealed(run / "evaluations.jsonl", evaluation_line(0, task, budget, 0.01));
        append_sealed(run / "evaluations.jsonl", evaluation_line(2, task, budget, accuracy * budget));
      }
  }
  std::vector<records::RunRecords> runs(std::vector<std::string> names) const {
    std::vector<fs::path> folders;
    for (const auto& name : names) folders.push_back(folder_ / name);
    return records::load_runs(folders);
  }
  std::string refusal(const std::string& name) const {
    try {
      records::load_run(folder_ / name);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(Report, ReadsWhatTheRunWrote) {
  const auto run = records::load_run(folder_ / "one");
  EXPECT_EQ(run.label, "one");
  EXPECT_EQ(run.method, "fedit");
  EXPECT_EQ(run.seed, 7);
  EXPECT_EQ(run.rounds.size(), 2u);
  EXPECT_EQ(run.last_evaluated(), 2);
  ASSERT_EQ(run.scores(2).size(), 4u);
  EXPECT_EQ(run.scores(2)[0].accuracy, 0.5);
}

TEST_F(Report, ALineStillBeingWrittenIsLeftOut) {
  const auto file = folder_ / "one/rounds.jsonl";
  write_file_atomic(file, read_file(file) + R"({"round":3,"lo)");
  EXPECT_EQ(records::load_run(folder_ / "one").rounds.size(), 2u);
}

TEST_F(Report, ARepeatedEvaluationReplacesTheFirst) {
  append_sealed(folder_ / "one/evaluations.jsonl", evaluation_line(2, "alpha", 1.0, 0.75));
  const auto scores = records::load_run(folder_ / "one").scores(2);
  EXPECT_EQ(scores.size(), 4u);
  EXPECT_EQ(scores[0].accuracy, 0.75);
}

/// Writes records of as many clients, or as often of one client, and returns the seconds that it takes to load them.
double seconds_to_load(const fs::path& run, int64_t records, bool of_one_client) {
  std::string lines;
  for (int64_t i = 0; i < records; ++i) {
    auto line = evaluation_line(2, "alpha", 1.0, 0.5);
    line.update(record::write(scoring::ClientOfScore{.id = of_one_client ? 0 : i}));
    lines += sealed(line) + '\n';
  }
  write_file_atomic(run / "evaluations.jsonl", lines);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(records::load_run(run).evaluations.size(), static_cast<size_t>(of_one_client ? 1 : records));
  return seconds_since(begin);
}

TEST_F(Report, ScoresOfManyClientsAreReadAsFastAsAsManyOfOneClient) {
  const double one = seconds_to_load(folder_ / "one", 30'000, true);
  EXPECT_LT(seconds_to_load(folder_ / "one", 30'000, false), 3 * one + 0.5);
}

TEST_F(Report, DamagedRecordsNameFileAndLine) {
  EXPECT_NE(refusal("missing").find("holds no run"), std::string::npos);
  append_sealed(folder_ / "one/rounds.jsonl", {{"round", 3}});
  EXPECT_NE(refusal("one").find("rounds.jsonl, line 3: method is missing"), std::string::npos);
  make_run("two", 0.5);
  append_sealed(folder_ / "two/evaluations.jsonl", {{"round", 3}, {"task", "x"}});
  EXPECT_NE(refusal("two").find("evaluations.jsonl, line 9: method is missing"), std::string::npos);
}

TEST_F(Report, TasksGoDownAndBudgetsAcrossWithChanceAndMajority) {
  make_run("two", 0.25);
  const auto text = table_text(runs({"one", "two"}), "accuracy");
  EXPECT_EQ(text,
            "accuracy, percent of rows, by budget, after the last evaluated round\n"
            "       one          two\n"
            "task   0.125     1  0.125     1  chance  majority  rows  questions\n"
            "alpha    6.2  50.0    3.1  25.0    25.0      30.0    40         38\n"
            "beta     6.2  50.0    3.1  25.0    25.0      30.0    40         38\n"
            "mean     6.2  50.0    3.1  25.0    25.0      30.0\n");
}

TEST_F(Report, AMeanOverTasksIsOfAllTasksOrThereIsNone) {
  append_sealed(folder_ / "one/evaluations.jsonl", evaluation_line(2, "gamma", 1.0, 0.8));
  const auto text = table_text(runs({"one"}), "accuracy");
  EXPECT_NE(text.find("gamma      -  80.0 "), text.npos) << text;
  EXPECT_NE(text.find("mean       -  60.0 "), text.npos) << text;
}

TEST_F(Report, AnExportedAdapterStandsBesideItsRun) {
  const auto served = [](OrderedJson line) {
    line["as_exported"] = true;
    line["served_by"] = "native_gates";
    return line;
  };
  append_sealed(folder_ / "one/evaluations.jsonl", served(evaluation_line(2, "alpha", 1.0, 0.75)));
  const auto text = table_text(runs({"one"}), "accuracy");
  for (const auto* part : {" one (exported: native gates)\n", "task   0.125     1 ", "alpha    6.2  50.0 ", " 75.0\n"})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  EXPECT_NE(table_text(runs({"one"}), "runs").find(" 28.1 "), std::string::npos) << "the run's own mean alone";
  const auto data = data_of(report_page(runs({"one"})));
  EXPECT_EQ(data["routings"][1], Json({{"name", "native_gates"}, {"title", "exported: native gates"}}));
  for (const auto& view : data["views"]) {
    if (view["measure"] != "accuracy" || view["task"] != "alpha") continue;
    EXPECT_EQ(view["served"]["run"]["arms"][0]["means"][1]["mean"], 0.5);
    EXPECT_EQ(view["served"]["native_gates"]["arms"][0]["means"][1]["mean"], 0.75);
  }
}

TEST_F(Report, ADenseRoundHasNoExpertsAndNoParts) {
  auto line = round_line(3, 1);
  for (const auto* key : {"bytes_up_parts", "bytes_down_parts"}) line[key] = OrderedJson::object();
  line.erase("layers");  // that of `experts` which tells
  append_sealed(folder_ / "one/rounds.jsonl", line);
  const auto run = runs({"one"})[0];
  EXPECT_FALSE(run.rounds.back().experts || run.rounds.back().gates_sum_to_one);
  const auto rounds = table_text({{run}}, "rounds");
  EXPECT_NE(rounds.find("one      3  1.0000  1.200 k   1.500 M     2.500 M  3.250 T           4.50\n"), rounds.npos)
      << rounds;
  EXPECT_NE(rounds.find("one      3        -       -     -\n"), rounds.npos) << rounds;
}

TEST_F(Report, FreeTextHasTablesOfItsOwn) {
  make_run("mixed", 0.5);
  OrderedJson line = {{"round", 2}, {"method", "fedit"}};
  line.update(record::write(scoring::TaskScore{.task = "telequad",
                                               .budget = 1.0,
                                               .rows = 4,
                                               .questions = 4,
                                               .kind = scoring::AnswerKind::kText,
                                               .exact_match = 0.25,
                                               .f1 = 0.625,
                                               .bert_score = 0.875,
                                               .context_cut = 3}));
  append_sealed(folder_ / "mixed/evaluations.jsonl", line);
  const auto mixed = runs({"mixed"}), plain = runs({"one"});
  EXPECT_EQ(mixed[0].scores(2).back().context_cut, 3);
  EXPECT_EQ(table_text(mixed, "f1"),
            "F1 of words, percent, by budget, after the last evaluated round\n"
            "          mixed\n"
            "task          1  rows  questions\n"
            "telequad   62.5     4          4\n"
            "mean       62.5\n");
  EXPECT_NE(table_text(mixed, "bert_score").find("87.5"), std::string::npos);
  EXPECT_EQ(table_text(mixed, "accuracy").find("telequad"), std::string::npos);
  EXPECT_NE(text_of(default_tables(mixed)).find("exact match"), std::string::npos);
  fs::remove(folder_ / "mixed/evaluations.jsonl");
  append_sealed(folder_ / "mixed/evaluations.jsonl", line);
  EXPECT_EQ(data_of(report_page(runs({"mixed"})))["endpoint"], "f1");
  EXPECT_EQ(data_of(report_page(runs({"one", "mixed"})))["endpoint"], "accuracy") << "no measure is in both";
  EXPECT_EQ(text_of(default_tables(plain)).find("exact match"), std::string::npos);
}

TEST_F(Report, ManyRunsWrapIntoGridsThatFit) {
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) {
    names.push_back(concat("a-rather-long-name-", i));
    make_run(names.back(), 0.5);
  }
  std::istringstream lines(table_text(runs(names), "accuracy_valid"));
  int heads = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    heads += line.starts_with("task") ? 1 : 0;
  }
  EXPECT_GT(heads, 1);
}

TEST_F(Report, EveryNamedTableCanBePrinted) {
  for (const auto name : table_names())
    EXPECT_NE(table_text(runs({"one"}), name).find('\n'), std::string::npos) << name;
  const auto rounds = table_text(runs({"one"}), "rounds");
  EXPECT_NE(rounds.find("one      2  1.0000  1.200 k   1.500 M     2.500 M  3.250 T           4.50\n"), rounds.npos)
      << rounds;
  EXPECT_NE(rounds.find("one      2   0.7500  0.2500     1\n"), rounds.npos) << rounds;
  EXPECT_THROW(table_text(runs({"one"}), "nonsense"), Error);
}

TEST_F(Report, TrafficIsAddedUpByContent) {
  EXPECT_EQ(table_text(runs({"one"}), "traffic"),
            "traffic of training; bytes of all rounds and clients by content, shares in\n  percent\n"
            "run   content  bytes up  share  bytes down  share\n"
            "one  adapters   2.400 M   80.0     2.400 M   48.0\n"
            "one    counts   600.0 k   20.0           -      -\n"
            "one       phi         -      -     2.600 M   52.0\n"
            "one       all   3.000 M  100.0     5.000 M  100.0\n");
}

TEST_F(Report, TrafficOfScoresThatNodesComputedIsShownApart) {
  fed::AuditLog audit(folder_ / "one" / "federation" / fed::kAuditFile);
  for (int64_t client = 0; client < 3; ++client)
    audit.add({.kind = fed::AuditKind::kReply,
               .client = client,
               .work = fed::AuditWork::kScore,
               .bytes_down = 200000,
               .bytes_up = 1000});
  const auto text = table_text(runs({"one"}), "traffic");
  EXPECT_NE(text.find("one  scores of nodes   3.000 k      -     600.0 k      -\n"), std::string::npos) << text;
  EXPECT_NE(text.find("one              all   3.000 M  100.0     5.000 M  100.0\n"), std::string::npos) << text;
}

TEST_F(Report, ARunWithoutRoundsStillHasAReport) {
  fs::remove(folder_ / "one/rounds.jsonl");
  fs::remove(folder_ / "one/evaluations.jsonl");
  EXPECT_NE(text_of(default_tables(runs({"one"}))).find("nothing is evaluated yet"), std::string::npos);
  EXPECT_FALSE(report_page(runs({"one"})).empty());
}

TEST_F(Report, ATableOfTheOtherKindOfAnswersSaysWhatThereIs) {
  EXPECT_EQ(table_text(runs({"one"}), "f1"),
            "F1 of words, percent: the tasks that were evaluated ask for choices; there are:\n"
            "  accuracy, invalid_rate, accuracy_valid, accuracy_likelihood\n");
}

TEST_F(Report, LabelsDiffer) {
  fs::create_directories(folder_ / "other");
  fs::copy(folder_ / "one", folder_ / "other/one", fs::copy_options::recursive);
  const auto both = runs({"one", "other/one"});
  EXPECT_NE(both[0].label, both[1].label);
}

TEST_F(Report, ABudgetAtWhichScoresHaveDifferentKIsNotNamedByK) {
  auto records = runs({"one"});
  for (auto& [round, method, score] : records[0].evaluations)
    if (score.budget == 0.125 && score.task == "beta") score.top_k = 8;
  EXPECT_EQ(data_of(report_page(records))["budgets"],
            Json::parse(R"([{"budget":0.125,"name":"budget 0.125"},{"budget":1.0,"name":"budget 1"}])"));
}

TEST_F(Report, ThePageIsOneFileThatLoadsNothing) {
  const auto page = report_page(runs({"one"}));
  EXPECT_NE(page.find("function linesChart"), std::string::npos);
  EXPECT_EQ(page.find("/*SCRIPT*/"), std::string::npos);
  EXPECT_EQ(page.find("<script src"), std::string::npos);
  EXPECT_EQ(page.find("<link"), std::string::npos);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.find("/*DATA*/"), std::string::npos);
}

TEST_F(Report, NamesCannotBecomeMarkupAndDataReadsBack) {
  const auto data = data_of(report_page(runs({"one"})));
  EXPECT_EQ(data["runs"][0]["model"], "</script><b>");
  EXPECT_EQ(data["training"][0]["name"], "loss");
  EXPECT_EQ(data["training"][0]["curves"][0]["mean"], Json({2.0, 1.0}));
  EXPECT_EQ(data["experts"]["maps"][0]["frames"][0]["utilization"][0][0], 0.1235);
  EXPECT_EQ(data["tasks"], Json::parse(R"([{"name":"alpha","rows":40,"questions":38},
                                           {"name":"beta","rows":40,"questions":38}])"));
  EXPECT_EQ(data["budgets"], Json::parse(R"([{"budget":0.125,"name":"K = 1"},{"budget":1.0,"name":"K = 1"}])"));
  EXPECT_EQ(data["views"].size(), 4 * 3u) << "four measures, of each task and of their mean";
}

/// Runs that were made elsewhere or otherwise: what a test does not name is as in the others.
class UnlikeRuns : public Report {
 protected:
  struct Made {
    std::string method = "fedit", compute_dtype = "float32", processor = "A", weights = "aa", products = "";
    bool renormalised = false;
    int64_t seed = 42, threads = 1;
  };
  void make(const std::string& name, const Made& made) const {
    make_run(name, 0.5);
    const auto run = folder_ / name;
    const auto config =
        concat("name = \"", name, "\"\nseed = ", made.seed, "\nthreads = ", made.threads,
               "\n\n[model]\npath = \"m\"\ndtype = \"checkpoint\"\ncompute_dtype = \"", made.compute_dtype, "\"\n",
               made.products, "\n[method]\nname = \"", made.method, "\"\n\n[output]\ndir = \"runs/", name, "\"\n");
    testing::write_run(run, config, [&](OrderedJson& manifest) {
      manifest["machine"] = {{"processor", made.processor}};
      manifest["files"] = {{{"path", "/m/config.json"}, {"bytes", 3}, {"sha256", "cc"}},
                           {{"path", "/m/model.safetensors"}, {"bytes", 3}, {"sha256", made.weights}},
                           {{"path", "/d/boolq/test.json"}, {"bytes", 3}, {"sha256", "dd"}}};
    });
    auto round = round_line(3, 1);
    round["gates_sum_to_one"] = made.renormalised;
    append_sealed(run / "rounds.jsonl", round);
  }
};

TEST_F(UnlikeRuns, AreMarkedWithOneLinePerDifference) {
  make("a", {});
  make("b", {.method = "ub-smoe",
             .compute_dtype = "bfloat16",
             .processor = "B",
             .weights = "bb",
             .renormalised = true,
             .threads = 2});
  EXPECT_EQ(differences_text(comparison::differences(runs({"a", "b"}))),
            "NOT ALIKE: the runs differ in more than their methods, and so may their figures\n"
            "  compute_dtype: float32 (a); bfloat16 (b)\n"
            "  gating: not renormalised (a); renormalised (b)\n"
            "  model files: model.safetensors aa (a); model.safetensors bb (b)\n"
            "  threads: 1 (a); 2 (b)\n"
            "  processor: A (a); B (b)\n"
            "\n");
  const auto page = report_page(runs({"a", "b"}));
  EXPECT_NE(page.find(R"({"what":"threads","sides":[{"value":"1","runs":["a"]},{"value":"2","runs":["b"]}]})"),
            std::string::npos);
}

TEST_F(UnlikeRuns, AreThoseOfWhichEachMeasuredOtherKernels) {
  const auto products = [](const std::string& last) {
    std::string lists = "[model.products]\n";
    for (const auto* name : {"expert_forward", "expert_backward", "linear_forward", "linear_backward"}) {
      lists += concat(name, " = [");
      for (size_t i = 0; i + 1 < nn::MatmulTable::kRows.size(); ++i) lists += "\"own\", ";
      lists += concat('"', last, "\"]\n");
    }
    return lists;
  };
  make("a", {.compute_dtype = "measured", .products = products("own")});
  make("b", {.compute_dtype = "measured", .products = products("widen")});
  const auto found = comparison::differences(runs({"a", "b"}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].what, "compute_dtype");
  EXPECT_TRUE(found[0].changes_function);
  EXPECT_EQ(found[0].sides[0].value.substr(0, 17), "measured: own own");
  EXPECT_NE(found[0].sides[1].value.find("own widen own"), std::string::npos) << found[0].sides[1].value;
}

TEST_F(UnlikeRuns, AreNotThoseThatDifferInTheirMethodOnly) {
  make("a", {});
  make("b", {.method = "ub-smoe"});
  EXPECT_EQ(differences_text(comparison::differences(runs({"a", "b"}))), "");
  EXPECT_EQ(differences_text(comparison::differences(runs({"a"}))), "");
  EXPECT_TRUE(data_of(report_page(runs({"a", "b"})))["differences"].empty());
}

TEST_F(UnlikeRuns, AreArmsThatWereRunWithOtherSeeds) {
  make("a", {.seed = 42});
  make("b", {.method = "ub-smoe", .seed = 42});
  make("b43", {.method = "ub-smoe", .seed = 43});
  const auto found = comparison::differences(runs({"a", "b", "b43"}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].what, "seeds");
  EXPECT_EQ(found[0].sides[1].value, "42, 43");
  make("a43", {.seed = 43});
  EXPECT_TRUE(comparison::differences(runs({"a", "a43", "b", "b43"})).empty());
}

TEST_F(UnlikeRuns, AreThoseThatScoredOtherQuestions) {
  make("a", {});
  make("b", {});
  auto line = evaluation_line(2, "alpha", 1.0, 0.5);
  line["questions"] = 37;
  for (const double budget : {1.0, 0.125}) {
    line["budget"] = budget;
    append_sealed(folder_ / "b/evaluations.jsonl", line);
  }
  const auto found = comparison::differences(runs({"a", "b"}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].sides[0].value, "alpha 38 in 40, beta 38 in 40");
  EXPECT_EQ(found[0].sides[1].value, "alpha 37 in 40, beta 38 in 40");
}

TEST_F(Report, TheRunsTableHasARowPerModeAndMeansOverCommonBudgets) {
  make_run("modes", 0.5);
  const auto add = [&](const std::string& run, const std::string& mode, double budget, double accuracy) {
    for (const auto* task : {"alpha", "beta"}) {
      auto line = evaluation_line(3, task, budget, accuracy);
      line["rank_eval_mode"] = mode;
      append_sealed(folder_ / run / "evaluations.jsonl", line);
    }
  };
  for (const double budget : {0.125, 1.0}) {
    add("modes", "a", budget, budget);
    add("modes", "b", budget, budget / 2);
  }
  const auto alone = table_text(runs({"modes"}), "runs");
  EXPECT_NE(alone.find("means over tasks and budgets\n"), alone.npos) << alone;
  EXPECT_NE(alone.find("modes (a)"), alone.npos) << alone;
  EXPECT_NE(alone.find(" 56.2 "), alone.npos) << alone;
  EXPECT_NE(alone.find(" 28.1 "), alone.npos) << alone;
  make_run("one-budget", 0.5);
  add("one-budget", "", 1.0, 0.75);
  const auto both = table_text(runs({"modes", "one-budget"}), "runs");
  for (const auto* part : {"means over the tasks", " 100.0 ", " 50.0 ", " 75.0 "})
    EXPECT_NE(both.find(part), both.npos) << part << '\n' << both;
  make_run("other-budget", 0.5);
  add("other-budget", "", 0.25, 0.75);
  EXPECT_EQ(table_text(runs({"modes", "other-budget"}), "runs").find("75.0"), std::string::npos);
}

/// Rounds 1 to 3 of 30 simulated seconds each, in which losses fall to 2 / t and scores rise; one client late in the
/// second.
class TimedReport : public UnlikeRuns {
 protected:
  void make_timed(const std::string& name, double seconds, const std::string& deadline) const {
    const auto run = folder_ / name;
    testing::write_run(run, concat("name = \"", name, "\"\n[clients]\nprofiles = { values = [\"box\"] }\ndeadline = ",
                                   deadline, "\n[client_profiles.box]\ntokens_per_second = [9.0]\n"));
    for (int64_t round : {1, 2, 3}) {
      auto line = round_line(round, 2.0 / static_cast<double>(round));
      const double end = static_cast<double>(round) * seconds;
      line["simulated"] = {{"start", end - seconds}, {"end", end}, {"took", seconds}};
      line["clients"][0]["simulated"] = {{"device", "box"}, {"down", 1.0},  {"train", 2.0},
                                         {"up", 3.0},       {"start", 4.0}, {"end", 10.0}};
      if (round == 2) line["lost"] = {{{"id", 1}, {"reason", "late"}, {"bytes_down", 7}}};
      append_sealed(run / "rounds.jsonl", line);
      append_sealed(run / "evaluations.jsonl", evaluation_line(round, "alpha", 1.0, 0.1 * static_cast<double>(round)));
    }
  }
};

TEST_F(TimedReport, AScoreIsShownAgainstTimeAndBytesAndWhenItIsReachedFirst) {
  make_timed("fast", 30, "0");
  make_timed("slow", 90, "0");
  const auto all = runs({"fast", "slow"});
  const auto after = standings(all[0]);
  ASSERT_EQ(after.size(), 3u) << "nothing was evaluated before the first round";
  EXPECT_EQ(after[1].seconds, 60);
  EXPECT_EQ(after[1].bytes, 2 * 4000000);
  EXPECT_EQ(after[1].loss, 1);
  EXPECT_EQ(after[1].score, 0.2);
  const auto text = table_text(all, "time");
  EXPECT_NE(text.find("fast      2  30.00 s         60.00 s  8.000 M  1.0000   20.0     1"), std::string::npos) << text;
  EXPECT_NE(text.find("slow   20.0      2        3:00 min  8.000 M"), std::string::npos) << text;
  EXPECT_NE(text.find("until a loss or less"), std::string::npos) << text;
  EXPECT_EQ(differences_text(comparison::differences(all)), "") << "their machines are the same";
}

/// Returns the lines "score round" of the table of scores that a run with these accuracies reached.
std::vector<std::string> reached_by(const std::vector<double>& accuracies) {
  records::RunRecords run;
  for (const double accuracy : accuracies) {
    auto& round = run.rounds.emplace_back();
    round.round = static_cast<int64_t>(run.rounds.size());
    run.evaluations.push_back({round.round, "fedit", {.task = "t", .rows = 1000, .accuracy = accuracy}});
  }
  std::vector<std::string> lines;
  const auto tables = time_tables({&run, 1});
  for (const auto& row : tables.at(1).rows) lines.push_back(row[1].text + ' ' + row[2].text);
  return lines;
}

TEST(TimeTable, AScoreIsReachedInTheRoundThatHasIt) {
  EXPECT_EQ(reached_by({0.058}), std::vector<std::string>{"5.8 1"}) << "100 * 0.058 / 100 is above 0.058";
  const auto three = reached_by({0, 0.006, 0.007});
  EXPECT_NE(std::find(three.begin(), three.end(), "0.6 2"), three.end()) << "6 * 0.1 / 100 is above 0.006";
  for (int score = 1; score <= 1000; ++score) EXPECT_TRUE(reached_by({score / 1000.0}).at(0).ends_with(" 1")) << score;
}

TEST(TimeTable, ScoresThatAreEqualUpToRoundingAreOneTarget) {
  EXPECT_EQ(reached_by({0.77, 0.77 - 1.2e-16}).size(), 1u);
  EXPECT_EQ(reached_by({0.77, 0.76999}).size(), reached_by({0.77, 0.76999, 0.77}).size());
}

TEST_F(TimedReport, RunsOfOtherDevicesOrWithoutAnyAreMarkedAndStillHaveBytes) {
  make_timed("a", 30, "0");
  make_timed("b", 30, "20");
  make("c", {});
  const auto all = runs({"a", "b", "c"});
  const auto text = differences_text(comparison::differences(all));
  EXPECT_NE(text.find("client profiles: box ("), std::string::npos) << text;
  EXPECT_NE(text.find("no simulated time (c)"), std::string::npos) << text;
  EXPECT_FALSE(standings(all[2]).back().seconds);
  EXPECT_GT(standings(all[2]).back().bytes, 0);
  const auto page = report_page(all);
  const auto arms = data_of(page)["arms"];
  EXPECT_EQ(arms[0]["spent"]["simulated_seconds"], Json({0, 30, 60, 90}));
  EXPECT_TRUE(arms[2]["spent"]["simulated_seconds"].back().is_null());
  EXPECT_NE(page.find("id=\"progress\""), std::string::npos);
}

TEST_F(Report, LongRunsAreThinnedInTheHeatMapOnly) {
  for (int64_t round = 3; round <= 500; ++round) append_sealed(folder_ / "one/rounds.jsonl", round_line(round, 1));
  const auto page = report_page(runs({"one"}));
  size_t frames = 0;
  for (size_t at = 0; (at = page.find("\"utilization\":", at)) != std::string::npos; ++at) ++frames;
  EXPECT_GE(frames, 58u);
  EXPECT_LE(frames, 62u);
}

TEST(Numbers, AreShortAndKeepTheirUnits) {
  EXPECT_EQ(compact(0), "0");
  EXPECT_EQ(compact(999), "999");
  EXPECT_EQ(compact(999.96), "1.000 k");
  EXPECT_EQ(compact(1234567), "1.235 M");
  EXPECT_EQ(compact(4.5e16), "45.00 P");
}

}  // namespace
}  // namespace evenkeel::report
