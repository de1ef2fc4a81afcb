// The paper's tables, and what is said of their order.
#include "study/paper/paper_comparison.h"

#include <gtest/gtest.h>

#include <set>

#include "base/plain/files.h"
#include "base/testing.h"
#include "scoring/measures.h"
#include "study/paper/paper_costs.h"
#include "study/paper/paper_experts.h"

namespace evenkeel::study {
namespace {

/// A run with one accuracy per (task, budget): base + task index / 100 + budget / 10.
records::RunRecords run_with(double base, const std::vector<std::string>& tasks, const std::vector<double>& budgets) {
  records::RunRecords run;
  for (size_t i = 0; i < tasks.size(); ++i)
    for (const double budget : budgets) {
      fed::EvaluationRecord record;
      record.round = 2;
      record.score.task = tasks[i];
      record.score.budget = budget;
      record.score.accuracy = base + static_cast<double>(i) / 100 + budget / 10;
      run.evaluations.push_back(record);
    }
  return run;
}

comparison::StudyRuns study_of(const std::string& name,
                               const std::vector<std::pair<std::string, std::vector<double>>>& arms,
                               const std::vector<std::string>& tasks, const std::vector<double>& budgets) {
  comparison::StudyRuns study{
      .name = name, .reference = arms[0].first, .endpoint = "accuracy", .arms = {}, .seeds = {}, .runs = {}};
  for (size_t seed = 1; seed <= arms[0].second.size(); ++seed) study.seeds.push_back(static_cast<int64_t>(seed));
  for (const auto& [arm, bases] : arms) {
    study.arms.push_back(arm);
    for (size_t i = 0; i < bases.size(); ++i)
      study.runs.push_back(
          {.arm = arm, .seed = study.seeds[i], .records = run_with(bases[i], tasks, budgets), .missing = {}});
  }
  return study;
}

PaperTable table_of(PaperRows rows, const std::vector<PaperRow>& values) {
  PaperTable table;
  table.id = "x";
  table.rows = rows;
  table.measure = "accuracy";
  table.unit = "fraction";
  table.studies = {"s"};
  table.arms = {"a", "b", "c"};
  table.values = values;
  return table;
}

TEST(PaperTables, EveryTableNamesShippedStudiesAndAKnownMeasure) {
  std::set<std::string> ids;
  for (const auto& table : paper_tables()) {
    EXPECT_TRUE(ids.insert(table.id).second) << table.id << " is there twice";
    EXPECT_FALSE(table.values.empty()) << table.id;
    if (!budget_cost(table.measure)) {
      EXPECT_NO_THROW(scoring::find_measure(table.measure)) << table.id;
    }
    for (const auto& row : table.values) {
      EXPECT_TRUE(row.measure.empty() || budget_cost(row.measure)) << table.id << ' ' << row.measure;
    }
    for (const auto& study : table.studies)
      for (const auto* folder : {"configs/paper", "configs/paper/small"})
        EXPECT_TRUE(is_file(shipped_folder() / folder / (study + ".toml")))
            << table.id << ": " << folder << '/' << study;
    for (const auto& note : table.notes)
      EXPECT_TRUE(note.arm.empty() || std::count(table.arms.begin(), table.arms.end(), note.arm))
          << table.id << note.arm;
  }
  EXPECT_GE(ids.size(), 19u);
}

// Sums that the paper's own pages give: the averages of its tables 2 and 4.
TEST(PaperTables, AveragesAreThoseOfTheRowsUpToRounding) {
  for (const auto* id : {"2", "3", "4", "4-equal", "5-iid", "5-non-iid", "16", "17", "18"}) {
    const auto table = find_paper_table(id);
    const auto& average = table.values.back();
    ASSERT_EQ(average.row, "average") << id;
    for (size_t arm = 0; arm < table.arms.size(); ++arm) {
      double sum = 0;
      for (size_t i = 0; i + 1 < table.values.size(); ++i) sum += table.values[i].paper[arm];
      const double mean = sum / static_cast<double>(table.values.size() - 1);
      EXPECT_NEAR(average.paper[arm], mean, table.unit == "percent" ? 0.011 : 0.0011) << id << ' ' << table.arms[arm];
    }
  }
}

TEST(PaperTables, AnUnknownOneIsRefusedWithThoseThereAre) {
  try {
    find_paper_table("99");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("paper:2, paper:3"), std::string::npos) << error.what();
  }
}

TEST(PaperComparison, RowsAreTasksBudgetsOrMeans) {
  const auto study = study_of("s", {{"a", {0.1, 0.3}}, {"b", {0.2, 0.2}}}, {"t0", "t1", "t2"}, {0.5, 1.0});
  const auto tasks = paper_results(table_of(PaperRows::kTask, {{"t2", {1, 2, 3}}, {"average", {1, 2, 3}}}), {{study}});
  EXPECT_NEAR(tasks[0].cells[0].by_seed.at(1), 0.1 + 0.02 + 0.075, 1e-12);
  EXPECT_NEAR(*tasks[1].cells[0].mean(), 0.2 + 0.01 + 0.075, 1e-12);
  EXPECT_EQ(tasks[2].row, "t0") << "a task that the paper does not have";
  EXPECT_FALSE(tasks[2].cells[0].paper);
  EXPECT_EQ(tasks[0].cells[2].seeds(), 0) << "no study has the arm c";
  const auto budgets = paper_results(table_of(PaperRows::kBudget, {{"0.5", {1, 2, 3}}}), {{study}});
  EXPECT_NEAR(*budgets[0].cells[1].mean(), 0.2 + 0.01 + 0.05, 1e-12);
  const auto means = paper_results(table_of(PaperRows::kMean, {{"average", {1, 2, 3}}}), {{study}});
  EXPECT_NEAR(*means[0].cells[1].mean(), 0.2 + 0.01 + 0.075, 1e-12);
}

TEST(PaperComparison, AMissingRunIsNeverAveragedOver) {
  auto study = study_of("s", {{"a", {0.1, 0.3, 0.5}}, {"b", {0.2, 0.2, 0.2}}}, {"t0"}, {1.0});
  study.runs[1].records.reset();
  study.runs[2].records->evaluations.clear();
  const auto result = paper_results(table_of(PaperRows::kMean, {{"average", {1, 2, 3}}}), {{study}})[0];
  EXPECT_EQ(result.cells[0].seeds(), 1);
  EXPECT_FALSE(result.cells[0].interval());
}

TEST(PaperComparison, ArmsOfTwoStudiesArePairedBySeed) {
  const auto one = study_of("s", {{"a", {0.1, 0.3, 0.6}}}, {"t0"}, {1.0});
  auto other = study_of("u", {{"b", {0.9, 0.0, 0.21}}}, {"t0"}, {1.0});
  other.seeds = {4, 1, 2};
  for (size_t i = 0; i < other.runs.size(); ++i) other.runs[i].seed = other.seeds[i];
  const auto result = paper_results(table_of(PaperRows::kMean, {{"average", {2, 1, 0}}}), {{one, other}})[0];
  const auto agreement = order_agreement(result);
  EXPECT_EQ(agreement.pairs, 1);
  EXPECT_EQ(agreement.shown, 1) << "0.1 and 0.09 more with seeds 1 and 2";
}

TEST(PaperComparison, AStudyOfWhichNoRunIsDoneHasNoValuesAndNoOrder) {
  auto study = study_of("s", {{"a", {0.1, 0.3}}, {"b", {0.2, 0.2}}, {"c", {0.4, 0.1}}}, {"t0"}, {1.0});
  for (auto& run : study.runs) {
    run.records.reset();
    run.missing = "not run yet";
  }
  auto table = table_of(PaperRows::kMean, {{"average", {0.3, 0.2, 0.1}}});
  for (const auto* measure : {"accuracy", "bytes_up", "entropy"}) {
    table.measure = measure;
    const auto results = paper_results(table, {{study}});
    for (const auto& cell : results[0].cells) EXPECT_EQ(cell.seeds(), 0) << measure;
    EXPECT_EQ(order_agreement(results[0]).pairs, 0);
    EXPECT_EQ(paper_sentences(table, results)[0], "Row average: nothing to compare with the paper.");
    EXPECT_EQ(paper_report(table, results).rows[0][3].text, "-");
  }
}

TEST(PaperComparison, RowsOfSeveralStudiesAreAveragedOverThem) {
  auto table = table_of(PaperRows::kBudget, {{"0.5", {1, 2, 3}}, {"1.0", {1, 2, 3}}, {"average", {1, 2, 3}}});
  table.studies = {"s", "r"};
  const std::vector studies{study_of("s", {{"a", {0.1}}}, {"t0"}, {0.5}), study_of("r", {{"a", {0.5}}}, {"t0"}, {1.0})};
  const auto results = paper_results(table, studies);
  EXPECT_NEAR(*results[0].cells[0].mean(), 0.15, 1e-12);
  EXPECT_NEAR(*results[1].cells[0].mean(), 0.6, 1e-12);
  EXPECT_NEAR(*results[2].cells[0].mean(), 0.375, 1e-12);
}

TEST(PaperComparison, AnOrderIsConfirmedWhereEveryPairIsShown) {
  const auto of = [](std::vector<double> a, std::vector<double> b, std::vector<double> c) {
    const auto study = study_of("s", {{"a", std::move(a)}, {"b", std::move(b)}, {"c", std::move(c)}}, {"t0"}, {1.0});
    return order_agreement(paper_results(table_of(PaperRows::kMean, {{"average", {0.3, 0.2, 0.1}}}), {{study}})[0]);
  };
  const auto shown = of({0.50, 0.51, 0.52}, {0.40, 0.42, 0.41}, {0.1, 0.1, 0.11});
  EXPECT_EQ(shown.pairs, 3);
  EXPECT_EQ(shown.shown, 3);
  EXPECT_TRUE(shown.confirmed());
  const auto unclear = of({0.5, 0.1, 0.6}, {0.40, 0.42, 0.01}, {0.3, 0.1, 0.2});
  EXPECT_EQ(unclear.agree, 3);
  EXPECT_FALSE(unclear.confirmed());
  const auto reversed = of({0.1, 0.1, 0.11}, {0.40, 0.42, 0.41}, {0.50, 0.51, 0.52});
  EXPECT_EQ(reversed.agree, 0);
  EXPECT_EQ(reversed.contradicted, 3);
}

/// Gives the runs of an arm one client of budget 1 that receives `mib` MiB in one round.
void give_download(comparison::StudyRuns& study, const std::string& arm, int64_t mib) {
  for (auto& run : study.runs) {
    if (run.arm != arm) continue;
    auto& client = run.records->rounds.emplace_back().clients.emplace_back();
    client.bytes_down = mib << 20;
  }
}

TEST(PaperComparison, DifferencesThatAreEqualInAllSeedsShowAnOrderOfCountsAndNoneOfScores) {
  auto table = table_of(PaperRows::kMean, {{"average", {0.3, 0.2, 0.1}}});
  table.claims = {{"average", "a", PaperDirection::kHighest}, {"average", "a", PaperDirection::kLowest}};
  auto study = study_of("s", {{"a", {0.5, 0.6}}, {"b", {0.4, 0.5}}, {"c", {0.1, 0.2}}}, {"t0"}, {1.0});
  for (const auto& [arm, mib] : {std::pair{"a", 5}, {"b", 2}, {"c", 1}}) give_download(study, arm, mib);
  const auto said = [&](const char* measure) {
    table.measure = measure;
    return paper_sentences(table, paper_results(table, {{study}}));
  };
  const auto counts = said("bytes_down");
  EXPECT_NE(
      counts[0].find("order was confirmed. Paper: a > b > c. Ours: a > b > c. In the paper's order: 3 of 3 pairs, "
                     "3 of them"),
      std::string::npos)
      << counts[0];
  EXPECT_NE(counts[1].find("was confirmed"), std::string::npos) << counts[1];
  EXPECT_NE(counts[2].find("was contradicted"), std::string::npos) << counts[2];
  const auto scores = said("accuracy");
  EXPECT_NE(scores[0].find("was not confirmed"), std::string::npos) << scores[0];
  EXPECT_NE(scores[0].find("3 of 3 pairs, 0 of them"), std::string::npos) << scores[0];
  for (const size_t i : {1, 2})
    EXPECT_NE(scores[i].find("was not compared (what is equal in all seeds has no interval)."), std::string::npos)
        << scores[i];
}

TEST(PaperComparison, MarksCellsWithANoteAndSaysWhatWasFound) {
  auto table = table_of(PaperRows::kMean, {{"average", {0.3, 0.2, 0.1}}});
  table.notes = {{"average", "b", "Printed twice."}, {"", "", "About the table."}};
  const auto study = study_of("s", {{"a", {0.5, 0.5}}, {"b", {0.6, 0.7}}, {"c", {0.1, 0.1}}}, {"t0"}, {1.0});
  const auto results = paper_results(table, {{study}});
  const auto text = report::text_of(paper_report(table, results));
  EXPECT_NE(text.find("0.2000 !"), std::string::npos) << text;
  EXPECT_EQ(text.find("0.3000 !"), std::string::npos) << text;
  const auto sentences = paper_sentences(table, results);
  ASSERT_EQ(sentences.size(), 3u);
  EXPECT_NE(sentences[0].find("not confirmed. Paper: a > b > c. Ours: b > a > c. In the paper's order: 2 of 3 pairs"),
            std::string::npos)
      << sentences[0];
  EXPECT_EQ(sentences[1], "! row average, b: Printed twice.");
  EXPECT_EQ(sentences[2], "About the table.");
}

TEST(PaperComparison, NoMeanOfOursIsTheBestOverUnequalSeeds) {
  const auto table = table_of(PaperRows::kMean, {{"average", {0.3, 0.2, 0.1}}});
  const auto study = study_of("s", {{"a", {0.5, 0.5}}, {"b", {0.6, 0.7}}, {"c", {0.1, 0.1}}}, {"t0"}, {1.0});
  auto results = paper_results(table, {{study}});
  const auto is_marked = [&] { return paper_report(table, results).rows[1][3].best; };
  EXPECT_TRUE(is_marked());
  results[0].cells[1].by_seed.erase(1);
  EXPECT_FALSE(is_marked());
  EXPECT_TRUE(paper_report(table, results).rows[0][2].best) << "the printed values have no seeds";
}

TEST(PaperComparison, AStudyWithoutOneOfTheArmsIsRefused) {
  const auto study = study_of("s", {{"z", {0.5}}}, {"t0"}, {1.0});
  EXPECT_THROW(paper_results(table_of(PaperRows::kMean, {{"average", {1, 2, 3}}}), {{study}}), Error);
}

TEST(PaperComparison, ARowHasItsOwnMeasureAndBudget) {
  auto table = table_of(PaperRows::kMeasure, {{"at half", {}}, {"all", {1}}});
  table.values[0].budget = 0.5;
  table.values[1].of = {"b"};
  const auto study = study_of("s", {{"a", {0.1, 0.3}}, {"b", {0.2, 0.2}}}, {"t0"}, {0.5, 1.0});
  const auto results = paper_results(table, {{study}});
  EXPECT_NEAR(*results[0].cells[0].mean(), 0.2 + 0.05, 1e-12);
  EXPECT_NEAR(*results[1].cells[1].mean(), 0.2 + 0.075, 1e-12);
  EXPECT_FALSE(results[1].cells[0].paper) << "the paper has no value of a";
  EXPECT_EQ(results[1].cells[1].paper, 1.0);
}

TEST(PaperComparison, ADirectionIsConfirmedShownOrContradictedByItsInterval) {
  const auto said = [](std::vector<double> a, std::vector<double> b, PaperDirection is) {
    auto table = table_of(PaperRows::kMeasure, {{"x", {}}});
    table.arms = {"a", "b"};
    table.claims = {{"x", "a", is}};
    const auto study = study_of("s", {{"a", std::move(a)}, {"b", std::move(b)}}, {"t0"}, {0.0});
    return paper_sentences(table, paper_results(table, {{study}})).front();
  };
  const std::vector<double> high{0.50, 0.51, 0.52}, low{0.10, 0.12, 0.11}, wide{0.1, 0.9, 0.4};
  EXPECT_NE(said(high, low, PaperDirection::kHighest).find("was confirmed"), std::string::npos);
  EXPECT_NE(said(high, low, PaperDirection::kLowest).find("was contradicted"), std::string::npos);
  EXPECT_NE(said(high, wide, PaperDirection::kHighest).find("was not shown"), std::string::npos);
  EXPECT_NE(said(high, low, PaperDirection::kPositive).find("was confirmed"), std::string::npos);
  EXPECT_NE(said({-0.2, -0.21, -0.2}, low, PaperDirection::kNegative).find("was confirmed"), std::string::npos);
  EXPECT_NE(said({0.5}, {0.1}, PaperDirection::kHighest).find("values of two seeds are needed"), std::string::npos);
}

/// A run of two rounds with two layers. The entropy of layer l in round r is r + l.
records::RunRecords run_with_experts() {
  records::RunRecords run;
  for (int64_t number = 1; number <= 2; ++number) {
    fed::RoundRecord round;
    round.round = number;
    auto& use = round.experts.emplace();
    use.layers = {"model.layers.3.mlp", "model.layers.10.mlp"};
    use.utilization = {{0.5, 1.5}, {0.25, 1.75}};
    const auto r = static_cast<double>(number);
    use.entropy = {r, r + 1};
    use.entropy_mean = r + 0.5;
    use.gini = {0.2, 0.6};
    use.gini_mean = 0.4;
    round.diagnostics.lists = {{"model.layers.3.mlp.phi", {0.5, -0.5}}, {"model.layers.10.mlp.phi", {0.75, -0.75}}};
    run.rounds.push_back(round);
  }
  return run;
}

TEST(PaperExperts, AreOfTheLastRoundOfARoundOrOfALayer) {
  const auto run = run_with_experts();
  const auto value = [&](std::string_view name) { return expert_measure(name)(run); };
  EXPECT_EQ(value("entropy"), 2.5);
  EXPECT_EQ(value("entropy change"), 1.0);
  EXPECT_EQ(value("entropy round 1"), 1.5);
  EXPECT_EQ(value("entropy layer 10"), 3.0);
  EXPECT_EQ(value("gini layer 3"), 0.2);
  EXPECT_NEAR(*value("gini_std"), 0.2, 1e-12);
  EXPECT_NEAR(*value("pearson"), -1, 1e-12);
  EXPECT_NEAR(*value("slope"), -1, 1e-12);
  EXPECT_FALSE(value("entropy layer 4"));
  EXPECT_FALSE(value("entropy round 3"));
  EXPECT_FALSE(value("pg_cosine"));
  EXPECT_EQ(expert_layers(run), (std::vector<std::string>{"layer 3", "layer 10"}));
  EXPECT_EQ(rounds_of(run), (std::vector<std::string>{"round 1", "round 2"}));
  for (const auto* name : {"accuracy", "pearson layer 3", "entropy thing", "entropi"})
    EXPECT_FALSE(expert_measure(name));
  records::RunRecords dense;
  dense.rounds.emplace_back();
  EXPECT_FALSE(expert_measure("gini")(dense));
  EXPECT_FALSE(expert_measure("pearson")(dense));
}

TEST(PaperExperts, CosinesAreThoseOfTheFileInTheRunFolder) {
  const testing::TemporaryFolder folder;
  records::RunRecords run;
  run.folder = folder.path();
  write_file_atomic(
      run.folder / "pg-alignment.jsonl",
      "{\"layer\":\"model.layers.2.mlp\",\"cosine\":0.25}\n{\"layer\":\"model.layers.3.mlp\",\"cosine\":null}\n"
      "{\"layer\":\"all\",\"cosine\":0.125}\n");
  EXPECT_EQ(expert_measure("pg_cosine")(run), 0.125);
  EXPECT_EQ(expert_measure("pg_cosine layer 2")(run), 0.25);
  EXPECT_FALSE(expert_measure("pg_cosine layer 3")(run));
  write_file_atomic(run.folder / "pg-alignment.jsonl", "{\"layer\":\"all\"}\n");
  EXPECT_THROW(expert_measure("pg_cosine")(run), Error);
}

TEST(PaperCosts, AreMeansOverTheClientsOfABudget) {
  records::RunRecords run;
  fed::RoundRecord round;
  fed::ClientOfRound client;
  client.budget = 0.5;
  client.bytes_up = 3 << 20;
  client.bytes_down = 5 << 20;
  client.flops = 1000;
  client.tokens = 100;
  round.clients = {client, client};
  round.clients[1].bytes_up = 1 << 20;
  round.clients[1].tokens = 300;
  run.rounds = {round, round};
  EXPECT_DOUBLE_EQ(*budget_cost("bytes_up")(run, 0.5), 2);
  EXPECT_DOUBLE_EQ(*budget_cost("bytes_down")(run, 0.5), 5);
  EXPECT_DOUBLE_EQ(*budget_cost("pass_flops")(run, 0.5), 2000.0 / 400 * 256);
  EXPECT_DOUBLE_EQ(*budget_cost("client_flops")(run, 0.5), 1000);
  run.rounds[0].clients[0].withheld = true;
  EXPECT_FALSE(budget_cost("client_flops")(run, 0.5)) << "FLOPs that are not told are not 0";
  EXPECT_FALSE(budget_cost("bytes_up")(run, 1.0));
  EXPECT_FALSE(budget_cost("accuracy"));
}

TEST(PaperCosts, SecondsAndTheUseOfExpertsAreMeasuredAndTheOthersCounted) {
  for (const auto* name :
       {"bytes_up", "bytes_down", "pass_flops", "activated_parameters", "flops_share", "client_flops"})
    EXPECT_TRUE(is_counted(name)) << name;
  for (const auto* name : {"aggregate_seconds", "gini", "pg_cosine", "accuracy"})
    EXPECT_FALSE(is_counted(name)) << name;
}

}  // namespace
}  // namespace evenkeel::study
