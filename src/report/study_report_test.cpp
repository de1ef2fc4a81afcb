#include "report/study_report.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/plain/files.h"
#include "base/testing.h"
#include "comparison/comparison.h"
#include "comparison/conclusion.h"
#include "comparison/curves.h"
#include "comparison/testing.h"
#include "report/study_tables.h"

namespace evenkeel::report {
namespace {

using comparison::ArmRun, comparison::StudyRuns, comparison::Comparison, comparison::compare;
using testing::study_of, testing::run_of, testing::changed_run, testing::give_config, testing::give_modes,
    testing::kReference;

TEST(Comparison, MeansAreOverTasksThenSeedsAndDifferencesArePaired) {
  const auto compared = compare(study_of({{"fedit", kReference}, {"ub-smoe", {-0.5, -0.8, -0.4, -0.5}}}));
  const auto& arms = compared.served.at(0).arms;
  EXPECT_NEAR(arms[0].budgets[0].mean.value(), 1.5 * (-1.05 - 0.5), 1e-12);
  EXPECT_EQ(arms[0].budgets[0].complete, 4);
  EXPECT_TRUE(arms[0].differences.empty());
  const auto& difference = arms[1].differences[1];
  EXPECT_EQ(difference.budget, 1);
  const std::vector<double> expected{0.75, 0.6, 0.75, 0.9};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(difference.by_seed[i], expected[i], 1e-12);
  const auto interval = comparison::t_interval(expected).value();
  EXPECT_NEAR(difference.t->low, interval.low, 1e-9);
  EXPECT_FALSE(difference.items);
  EXPECT_EQ(compared.served[0].comparisons, 2);
  EXPECT_EQ(arms[1].tasks[0].wins, 8);
  EXPECT_EQ(arms[1].tasks[0].losses + arms[1].tasks[0].ties, 0);
}

TEST(Comparison, HolmCorrectsOverArmsAndBudgets) {
  const auto compared =
      compare(study_of({{"fedit", kReference}, {"x", {-0.5, -0.8, -0.4, -0.5}}, {"y", {-1, -1.1, -0.95, -1.2}}}));
  const auto& served = compared.served[0];
  EXPECT_EQ(served.comparisons, 4);
  std::vector<double> p, corrected;
  for (const auto& arm : served.arms)
    for (const auto& difference : arm.differences) {
      p.push_back(*difference.p);
      corrected.push_back(*difference.p_holm);
    }
  EXPECT_EQ(corrected, comparison::holm(p));
}

TEST(Comparison, OfOneTaskAtOneBudgetIsCorrectedOverTheArmsAlone) {
  const auto study = study_of({{"fedit", kReference}, {"x", {-0.5, -0.8, -0.4, -0.5}}, {"y", {-1, -1.1, -0.95, -1.2}}});
  const auto all = compare(study);
  const auto task = all.served[0].tasks.back();
  const double budget = all.served[0].budgets.back();
  const auto one = compare(study, {.tasks = {task}, .budgets = {budget}});
  const auto& served = one.served[0];
  EXPECT_EQ(served.tasks, std::vector<std::string>{task});
  EXPECT_EQ(served.budgets, std::vector<double>{budget});
  EXPECT_EQ(served.comparisons, 2);
  std::vector<double> p;
  const comparison::ScoreLookup scores(study, false);
  for (size_t arm = 1; arm < 3; ++arm) {
    const auto& difference = served.arms[arm].differences.at(0);
    for (size_t i = 0; i < 4; ++i) {
      const auto of = [&](const std::string& name) {
        return *scores.value({name, "", scoring::ServedBy::kRun}, study.seeds[i], budget, task, *one.endpoint);
      };
      EXPECT_NEAR(difference.by_seed[i], of(served.arms[arm].arm) - of("fedit"), 1e-12);
    }
    p.push_back(*difference.p);
  }
  EXPECT_EQ((std::vector<double>{*served.arms[1].differences[0].p_holm, *served.arms[2].differences[0].p_holm}),
            comparison::holm(p));
  EXPECT_NE(join(one.notes).find("only of tasks: " + task), std::string::npos) << join(one.notes);
}

TEST(Comparison, OfATaskOrABudgetThatIsNotThereIsRefusedWithThoseThereAre) {
  const auto study = study_of({{"fedit", kReference}, {"x", {-0.5, -0.8, -0.4, -0.5}}});
  const auto all = compare(study).served[0];
  const auto task = testing::refusal([&] { compare(study, {.tasks = {all.tasks[0], "poems"}}); });
  EXPECT_NE(task.find("\"poems\", there are: " + join(all.tasks)), std::string::npos) << task;
  const auto budget = testing::refusal([&] { compare(study, {.budgets = {0.3}}); });
  EXPECT_NE(budget.find("budget 0.3, there are: " + join(all.budgets)), std::string::npos) << budget;
}

TEST(Comparison, AMissingRunIsNamedAndLeavesItsPair) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", {-0.5, -0.8, -0.4, -0.5}}});
  auto& lost = changed_run(study, "ub-smoe", 3);
  lost.records.reset();
  lost.missing = "failed: out of memory";
  const auto compared = compare(study);
  ASSERT_EQ(compared.missing.size(), 1u);
  EXPECT_EQ(compared.missing[0], "ub-smoe, seed 3: failed: out of memory");
  const auto& arms = compared.served[0].arms;
  EXPECT_EQ(arms[0].budgets[0].complete, 4);
  EXPECT_EQ(arms[1].budgets[0].complete, 3);
  EXPECT_FALSE(arms[1].budgets[0].by_seed[2]);
  EXPECT_EQ(arms[1].differences[0].seeds, (std::vector<int64_t>{1, 2, 4}));
  EXPECT_EQ(compared.costs[1].runs, 3);
}

TEST(Comparison, ASeedThatLacksATaskIsNotAveragedOverTheOthers) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", {-0.5, -0.8, -0.4, -0.5}}});
  auto& evaluations = changed_run(study, "fedit", 2).records->evaluations;
  evaluations.erase(evaluations.begin() + 3);                                            // task b at budget 1
  changed_run(study, "ub-smoe", 1).records->evaluations[0].score.missing_clients = {4};  // task a at budget 0.5
  const auto compared = compare(study);
  const auto& arms = compared.served[0].arms;
  EXPECT_EQ(arms[0].budgets[0].complete, 4);
  EXPECT_EQ(arms[0].budgets[1].complete, 3);
  EXPECT_EQ(arms[1].differences[0].seeds, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(arms[1].differences[1].seeds, (std::vector<int64_t>{1, 3, 4}));
  EXPECT_EQ(compared.missing, (std::vector<std::string>{"fedit, seed 2: no score of b at budget 1",
                                                        "ub-smoe, seed 1: no score of a at budget 0.5"}));
}

TEST(Comparison, ASeedWithoutAReadableAnswerHasNoAccuracyAmongThem) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", {-0.5, -0.8, -0.4, -0.5}}});
  study.endpoint = "accuracy_valid";
  for (auto& run : study.runs)
    for (auto& record : run.records->evaluations) record.score.accuracy_valid = 0.5;
  auto& unread = changed_run(study, "ub-smoe", 3).records->evaluations[0].score;  // task a at budget 0.5
  unread.invalid_rate = 1;
  unread.accuracy = unread.accuracy_valid = 0;
  auto& wrong = changed_run(study, "ub-smoe", 4).records->evaluations[0].score;  // readable, but wrong
  wrong.accuracy = wrong.accuracy_valid = 0;
  const auto compared = compare(study);
  const auto& arm = compared.served[0].arms[1];
  EXPECT_EQ(arm.budgets[0].complete, 3);
  EXPECT_EQ(arm.budgets[0].mean, (0.5 + 0.5 + 0.25) / 3);
  EXPECT_EQ(arm.differences[0].seeds, (std::vector<int64_t>{1, 2, 4}));
  EXPECT_EQ(arm.budgets[1].complete, 4);
  EXPECT_EQ(csv_report(study, compared).find("ub-smoe,3,2,run,,0.5,0,a,accuracy_valid,"), std::string::npos);
  EXPECT_NE(csv_report(study, compared).find("ub-smoe,4,2,run,,0.5,0,a,accuracy_valid,0,\n"), std::string::npos);
}

TEST(Comparison, OneSeedHasNoIntervalAndItIsSaid) {
  const auto study = study_of({{"fedit", {-1}}, {"ub-smoe", {-0.5}}});
  const auto compared = compare(study);
  EXPECT_FALSE(compared.served[0].arms[1].differences[0].t);
  EXPECT_EQ(compared.served[0].comparisons, 0);
  EXPECT_EQ(compared.notes.at(0), "one seed: there is no interval and no test");
  EXPECT_EQ(
      compared.served[0].conclusions.at(0),
      "Nothing can be said of the difference of ub-smoe to fedit at any budget: fewer than two seeds are complete "
      "in both.");
  EXPECT_NE(text_report(study, compared).find("one seed"), std::string::npos);
}

TEST(Comparison, ItSaysWhatWasShownAndWhatCouldNotHaveBeen) {
  const auto compared = compare(study_of({{"fedit", kReference},
                                          {"near", {-1.1, -1.15, -1, -1.05}},
                                          {"better", {-0.5, -0.71, -0.4, -0.6}},
                                          {"same", kReference}}));
  const auto& said = compared.served[0].conclusions;
  EXPECT_EQ(said[0].find("No difference of near to fedit was shown at any budget; differences below 0."), 0u)
      << said[0];
  EXPECT_EQ(said[0].substr(said[0].size() - 30), " could not have been detected.") << said[0];
  EXPECT_EQ(said[1], "A difference of better to fedit was shown at budget 0.5 (+0.75, better), 1 (+0.75, better).");
  EXPECT_EQ(said[2], "Difference of same to fedit is 0 in every pair.");
}

TEST(Comparison, ADifferenceThatIsTheSameInEveryPairIsNotTested) {
  const auto study = study_of({{"fedit", {-1, -1.2}}, {"x", {-0.9, -1.1}}});
  const auto compared = compare(study);
  EXPECT_EQ(compared.served[0].conclusions.at(0),
            "The difference of x to fedit is the same in every pair at budget 0.5 (+0.15, better), 1 (+0.15, better), "
            "which no t-test can judge.");
  EXPECT_EQ(compared.served[0].comparisons, 0);
  EXPECT_FALSE(compared.served[0].arms[1].differences[0].t);
  EXPECT_FALSE(compared.served[0].arms[1].differences[0].bca);
  const auto text = text_report(study, compared);
  EXPECT_EQ(text.find("<0.001"), std::string::npos);
  EXPECT_EQ(text.find("[0.15"), std::string::npos) << text;
}

// With two seeds, t of the differences a and b is (a + b) / |a - b|, and p is 0.05 at 12.706: it is 13 and then 12. The
// only difference is at one budget, so that Holm's correction changes nothing.
TEST(Comparison, ADifferenceIsShownFromFivePercentOn) {
  const auto said = [](double first, double second) {
    const auto compared = compare(study_of({{"fedit", {-2, -2.5}}, {"x", {-2 + first, -2.5 + second}}}),
                                  {.budgets = {1.0}, .bootstrap = false});
    EXPECT_EQ(compared.served[0].comparisons, 1);
    return compared.served[0].conclusions.at(0);
  };
  EXPECT_EQ(said(0.14, 0.12).find("A difference of x to fedit was shown at budget 1 ("), 0u) << said(0.14, 0.12);
  EXPECT_EQ(said(0.13, 0.11).find("No difference of x to fedit was shown at any budget; "), 0u) << said(0.13, 0.11);
}

TEST(Comparison, OfAMeasureThatShouldBeLowTheLowerIsBetter) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", kReference}});
  for (auto& run : study.runs)
    for (auto& evaluation : run.records->evaluations)
      evaluation.score.invalid_rate = (run.arm == "fedit" ? 0.3 : 0.2) + 0.001 * static_cast<double>(run.seed);
  study.endpoint = "invalid_rate";
  for (auto& evaluation : changed_run(study, "ub-smoe", 2).records->evaluations)
    evaluation.score.invalid_rate += 0.0001;
  const auto compared = compare(study);
  EXPECT_EQ(compared.served[0].arms[1].tasks[0].wins, 8);
  EXPECT_EQ(
      compared.served[0].conclusions[0],
      "A difference of ub-smoe to fedit was shown at budget 0.5 (-10.0 points, better), 1 (-10.0 points, better).");
}

TEST(Comparison, ModesOfRankMethodsAreArmsOfTheirOwn) {
  auto study = study_of({{"fedit", kReference}, {"hetlora", kReference}});
  for (auto& run : study.runs) {
    if (run.arm != "hetlora") continue;
    auto second = run.records->evaluations;
    for (auto& evaluation : run.records->evaluations) evaluation.score.rank_eval_mode = "a";
    for (auto& evaluation : second) {
      evaluation.score.rank_eval_mode = "b";
      *evaluation.score.log_likelihood += 0.25;
      run.records->evaluations.push_back(evaluation);
    }
  }
  const auto arms = compare(study).served[0].arms;
  ASSERT_EQ(arms.size(), 3u);
  EXPECT_EQ(arms[1].label, "hetlora (a)");
  EXPECT_NEAR(arms[1].differences[0].mean.value(), 0, 1e-12);
  EXPECT_NEAR(arms[2].differences[0].mean.value(), 0.25, 1e-12);
}

TEST(Comparison, AnArmThatServesAsItRunsStandsForItsExport) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", kReference}});
  for (auto& run : study.runs) {
    if (run.arm != "ub-smoe") continue;
    const auto own = run.records->evaluations;
    for (auto evaluation : own) {
      evaluation.score.served_by = scoring::ServedBy::kNativeGates;
      *evaluation.score.log_likelihood -= 1;
      run.records->evaluations.push_back(evaluation);
    }
  }
  const auto compared = compare(study);
  ASSERT_EQ(compared.served.size(), 2u);
  EXPECT_EQ(compared.served[1].served_by, scoring::ServedBy::kNativeGates);
  EXPECT_NEAR(compared.served[1].arms[1].differences[0].mean.value(), -1, 1e-12);
  EXPECT_NEAR(compared.served[1].arms[0].budgets[0].mean.value(), compared.served[0].arms[0].budgets[0].mean.value(),
              1e-12);
}

TEST(Comparison, AnArmThatWasNotScoredAsExportedDoesNotStandForItsExport) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", kReference}, {"a3smoe", kReference}});
  for (auto& run : study.runs) {
    if (run.arm == "a3smoe") give_config(*run.records, "evaluate.as_exported = false");
    if (run.arm != "ub-smoe") continue;
    for (auto evaluation : std::vector(run.records->evaluations)) {
      evaluation.score.served_by = scoring::ServedBy::kNativeGates;
      run.records->evaluations.push_back(evaluation);
    }
  }
  const auto compared = compare(study);
  EXPECT_EQ(compared.served[0].arms.size(), 3u);
  const auto& exported = compared.served[1];
  EXPECT_EQ(exported.arms.size(), 2u);
  EXPECT_EQ(exported.not_exported, std::vector<std::string>{"a3smoe"});
  EXPECT_NE(function_note(exported).find("Not scored as exported (evaluate.as_exported = false): a3smoe."),
            std::string::npos)
      << function_note(exported);
}

TEST(Comparison, CostsAreSumsOverRoundsAndMeansOverRuns) {
  const auto compared = compare(study_of({{"fedit", kReference}, {"ub-smoe", kReference}}));
  const auto& means = compared.costs[0].means;
  EXPECT_EQ(means[0], 2000);
  EXPECT_EQ(means[1], 1500);
  EXPECT_EQ(means[2], 2e9);
  EXPECT_EQ(means[3], 60);
  EXPECT_EQ(means[4], 2.5);
  EXPECT_FALSE(means[5]);
}

TEST(Comparison, WithheldWorkIsNoCostOfZero) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", kReference}});
  changed_run(study, "ub-smoe", 2).records->rounds[1].withheld = true;
  changed_run(study, "fedit", 1).records->rounds[0].clients.emplace_back().privacy = {{.withheld = true}};
  const auto compared = compare(study);
  for (const auto& cost : compared.costs) {
    EXPECT_EQ(cost.means[0], 2000) << cost.arm;
    EXPECT_FALSE(cost.means[2]) << cost.arm;
    EXPECT_FALSE(cost.means[3]) << cost.arm;
  }
  const auto csv = csv_report(study, compared);
  EXPECT_EQ(csv.find("ub-smoe,2,2,,,,,,flops"), csv.npos) << csv;
  EXPECT_NE(csv.find("ub-smoe,1,2,,,,,,flops,2"), csv.npos) << csv;
  const auto spent = comparison::spent_by(*changed_run(study, "ub-smoe", 2).records);
  EXPECT_EQ(spent.at(1).flops, 1e9);
  EXPECT_FALSE(spent.at(2).flops);
}

TEST(Comparison, AnEndpointThatNoTaskHasIsRefusedWithThoseThereAre) {
  auto study = study_of({{"fedit", kReference}});
  study.endpoint = "f1";
  try {
    compare(study);
    FAIL() << "f1 of choices";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("log_likelihood, accuracy"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("older versions"), std::string::npos) << error.what();
  }
  study.endpoint = "beauty";
  EXPECT_THROW(compare(study), Error);
  study.endpoint = "accuracy";
  for (auto& run : study.runs) run.missing = "not run yet";
  EXPECT_THROW(compare(study), Error);
}

TEST(Comparison, TextFitsInto80ColumnsWhateverTheNames) {
  std::vector<std::pair<std::string, std::vector<double>>> levels;
  for (int i = 0; i < 9; ++i)
    levels.emplace_back(concat("an-arm-with-a-name-that-goes-on-and-on-and-on-", i),
                        std::vector<double>{-80.0, -97.5, -11});
  const auto study = study_of(levels);
  std::istringstream lines(text_report(study, compare(study)));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(Comparison, LatexEscapesNamesAndMarksTheBestOfEachBudget) {
  const auto study = study_of({{"a_b", kReference}, {"50%&more", {-0.5, -0.8, -0.4, -0.5}}});
  const auto text = latex_report(study, compare(study));
  EXPECT_NE(text.find("a\\_b & $"), std::string::npos) << text;
  EXPECT_NE(text.find("50\\%\\&more & $\\mathbf{-1.5750}$ {\\footnotesize $["), std::string::npos) << text;
  EXPECT_NE(text.find("a\\_b & $-2.3250$"), std::string::npos) << text;
}

TEST(Comparison, RunsThatDifferInTheirSeedsAloneAreOneArm) {
  std::vector<records::RunRecords> runs;
  for (const auto& [method, seed] : {std::pair{"fedit", 3}, {"fedit", 1}, {"ub-smoe", 1}}) {
    auto run = *run_of(method, seed, -1).records;
    give_config(run, concat("name = \"", method, seed, "\"\nseed = ", seed, "\n[method]\nname = \"", method, "\"\n"));
    runs.push_back(run);
  }
  auto study = comparison::arms_of(runs);
  EXPECT_EQ(study.arms, (std::vector<std::string>{"fedit", "ub-smoe"}));
  EXPECT_EQ(study.seeds, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(study.find("ub-smoe", 3)->missing, "no run of that arm and seed is given");
  study.endpoint = "accuracy";
  EXPECT_EQ(compare(study).served[0].arms[1].differences[0].seeds, std::vector<int64_t>{1});
  runs.push_back(runs[1]);
  runs.back().label = "again";
  study = comparison::arms_of(runs);
  EXPECT_EQ(study.arms.size(), 3u) << "a run that repeats a seed is of another arm: no run counts twice";
  EXPECT_TRUE(study.find("again", 1)->records);
}

TEST(Comparison, RunsThatDifferInKeysWithoutAnEffectAreOneArm) {
  std::vector<records::RunRecords> runs;
  for (const auto* words : {"seed = 1\n", "seed = 2\n[report]\ntensorboard = true\n[clients]\nparallel = 2\n",
                            "seed = 3\n[lora]\nalpha = 4.0\n"}) {
    auto run = *run_of(concat("run", runs.size()), 1, -1).records;
    give_config(run, concat(words, "[method]\nname = \"fedit\"\n"));
    runs.push_back(run);
  }
  const auto study = comparison::arms_of(runs);
  EXPECT_EQ(study.arms, (std::vector<std::string>{"run0", "run2"}));
  EXPECT_TRUE(study.find("run0", 2)->records);
}

TEST(Comparison, TheReferenceOfARankMethodIsNamedWithItsMode) {
  auto study = study_of({{"flora", kReference}, {"fedit", kReference}});
  for (auto& run : study.runs)
    if (run.arm == "flora") give_modes(run, 0.25);
  auto compared = compare(study);
  EXPECT_EQ(compared.served[0].conclusions[0],
            "Difference of fedit to flora (a) is 0 in every pair; the two also differ in rank of scores (that of the "
            "whole adapter; flora (a): that of the budget).");
  auto text = text_report(study, compared) + markdown_report(study, compared);
  for (const auto* part : {"fedit less flora (a), paired by seed", "wins-losses-ties against flora (a), over",
                           "**Differences to flora (a), paired by seed**"})
    EXPECT_NE(text.find(part), text.npos) << part << '\n' << text;
  study = study_of({{"flora", kReference}, {"hetlora", kReference}, {"fedit", kReference}});
  for (auto& run : study.runs)
    if (run.arm != "fedit") give_modes(run, 0.25);
  compared = compare(study);
  EXPECT_EQ(compared.served[0].conclusions[1], "Difference of hetlora (b) to flora (b) is 0 in every pair.");
  text = markdown_report(study, compared);
  for (const auto* part : {"| hetlora (b) less flora (b) |", "| fedit less flora (a) |"})
    EXPECT_NE(text.find(part), text.npos) << part << '\n' << text;
}

TEST(Comparison, NoMeanIsTheBestOverUnequalSeeds) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", {-0.5, -0.8, -0.4, -0.5}}});
  const auto whole = markdown_report(study, compare(study));
  EXPECT_NE(whole.find("| **-1.5750** ["), whole.npos) << whole;
  EXPECT_EQ(whole.find("n="), whole.npos) << "every arm has every seed";
  EXPECT_NE(text_report(study, compare(study)).find("-1.5750*"), std::string::npos);
  auto& lost = changed_run(study, "ub-smoe", 1);
  lost.records.reset();
  lost.missing = "failed: out of memory";
  const auto compared = compare(study);
  const auto text = text_report(study, compared), markdown = markdown_report(study, compared),
             latex = latex_report(study, compared);
  EXPECT_EQ(text.find("-1.6000*"), text.npos) << text;
  EXPECT_NE(text.find("if all arms have the same seeds"), text.npos) << text;
  EXPECT_EQ(markdown.find("| **-"), markdown.npos) << markdown;
  EXPECT_EQ(latex.find("mathbf"), latex.npos) << latex;
  for (const auto* part : {"], n=4 |", "], n=3 |"}) EXPECT_NE(markdown.find(part), markdown.npos) << part << markdown;
  for (const auto* part : {"], n=4$}", "], n=3$}"}) EXPECT_NE(latex.find(part), latex.npos) << part << latex;
}

TEST(Comparison, TheRoundsOfEachArmAreNamedIfSomeStoppedEarly) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", kReference}});
  EXPECT_EQ(text_report(study, compare(study)).find("scored after"), std::string::npos);
  auto& run = *changed_run(study, "ub-smoe", 2).records;
  for (auto& evaluation : run.evaluations) evaluation.round = 1;
  run.total_rounds = 1;
  run.stopped_early = true;
  const auto text = text_report(study, compare(study));
  EXPECT_NE(text.find("note: scored after round: fedit 2; ub-smoe 2, 1 (stopped early)"), text.npos) << text;
  EXPECT_EQ(text.find("NOT ALIKE"), text.npos) << text;
  for (auto& one : study.runs) {
    for (auto& evaluation : one.records->evaluations) evaluation.round = 1;
    one.records->total_rounds = 1;
    one.records->stopped_early = true;
  }
  EXPECT_EQ(compare(study).notes.at(0), "scored after round: fedit 1 (stopped early); ub-smoe 1 (stopped early)");
}

TEST(Comparison, RunFoldersThatHaveNotEndedAreNotAlike) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", kReference}});
  for (auto& run : study.runs) run.records->total_rounds = run.arm == "ub-smoe" && run.seed == 2 ? 6 : 2;
  const auto text = text_report(study, compare(study));
  EXPECT_NE(text.find("note: scored after round: fedit 2; ub-smoe 2, 2 of 6"), text.npos) << text;
  EXPECT_NE(text.find("scored after: all rounds (fedit, ub-smoe); round 2 of 6, unfinished (ub-smoe)\n"), text.npos)
      << text;
  for (auto& run : study.runs) run.records->total_rounds = 6;
  const auto both = text_report(study, compare(study));
  EXPECT_NE(both.find("note: scored after round: fedit 2 of 6; ub-smoe 2 of 6"), both.npos) << both;
  EXPECT_EQ(both.find("NOT ALIKE"), both.npos) << both;
}

/// Runs with folders that hold the scores of single rows, two per task.
class ComparisonOfRows : public ::testing::Test {
 protected:
  ComparisonOfRows() { place_runs(); }
  void place_runs() {
    for (auto& run : study_.runs) {
      run.records->folder = temporary_.path() / concat(run.arm, '-', run.seed);
      fs::create_directories(run.records->folder / "items");
      give_config(*run.records, "[data.files]\nsplit_seed = 42\n");
      write_rows(run, {-0.5, 0.5});
    }
  }
  /// Writes rows whose values differ from the score of their task by `distances`.
  static void write_rows(const ArmRun& run, const std::vector<double>& distances) {
    std::string lines;
    for (const auto& [round, method, score] : run.records->evaluations) {
      fed::ItemRecord record{.round = 2, .task = score.task, .budget = score.budget};
      for (const double distance : distances) record.items.log_likelihood.push_back(*score.log_likelihood + distance);
      lines += sealed(record::write(record)) + '\n';
    }
    write_file_atomic(run.records->folder / "items/round-2.jsonl", lines);
  }
  std::vector<std::string> notes() const { return compare(study_).notes; }
  bool draws_rows() const { return compare(study_).served[0].arms[1].differences[0].items; }

  const testing::TemporaryFolder temporary_;
  StudyRuns study_ = study_of({{"fedit", kReference}, {"ub-smoe", {-0.5, -0.8, -0.4, -0.5}}});
};

TEST_F(ComparisonOfRows, TheBootstrapPairsRowsThatAreTheSame) {
  EXPECT_TRUE(draws_rows());
  EXPECT_EQ(notes(), std::vector<std::string>{});
}

// A row differs from itself in the other arm as the score of its task does, so that no draw of rows leaves the range of
// the seeds. A row less another one differs by 1 more or 1 less.
TEST_F(ComparisonOfRows, ARowIsPairedWithItself) {
  const double least = 0.6 - 1e-9, most = 0.9 + 1e-9;
  const auto paired = compare(study_).served[0].arms[1].differences[0].bca.value();
  EXPECT_GE(paired.low, least);
  EXPECT_LT(paired.low, paired.high);
  EXPECT_LE(paired.high, most);
  for (const auto& run : study_.runs)
    if (run.arm == "ub-smoe") write_rows(run, {0.5, -0.5});
  const auto crossed = compare(study_).served[0].arms[1].differences[0].bca.value();
  EXPECT_LT(crossed.low, least);
  EXPECT_GT(crossed.high, most);
}

TEST_F(ComparisonOfRows, EqualDifferencesOfSeedsHaveTheIntervalOfTheirRows) {
  study_ = study_of({{"fedit", {-1, -1.2}}, {"ub-smoe", {-0.9, -1.1}}});
  place_runs();
  for (const auto& run : study_.runs)
    if (run.arm == "ub-smoe") write_rows(run, {0.5, -0.5});
  const auto difference = compare(study_).served[0].arms[1].differences[0];
  EXPECT_FALSE(difference.t);
  ASSERT_TRUE(difference.bca && difference.items);
  EXPECT_LT(difference.bca->low, difference.bca->high);
}

TEST_F(ComparisonOfRows, TheBootstrapDrawsNoRowsOfSingleClients) {
  const auto compared = compare(study_);
  const auto rows = [&] {
    const comparison::Aspect aspect{"fedit", "", scoring::ServedBy::kRun};
    return comparison::ScoreLookup(study_).items(aspect, 1, 0.5, "a", *compared.endpoint);
  };
  const auto of_all = rows();
  EXPECT_EQ(of_all.size(), 2u);
  fed::ItemRecord of_client{.round = 2, .task = "a", .budget = 0.5, .client = scoring::ClientOfScore{.id = 3}};
  of_client.items.log_likelihood = {-7.5};
  for (const auto& run : study_.runs) {
    const auto file = run.records->folder / "items/round-2.jsonl";
    write_file_atomic(file, sealed(record::write(of_client)) + '\n' + read_file(file));
  }
  EXPECT_EQ(rows(), of_all);
}

TEST_F(ComparisonOfRows, TheBootstrapDoesNotPairOtherRows) {
  for (auto& run : study_.runs)
    if (run.arm == "ub-smoe") give_config(*run.records, "[data.files]\nsplit_seed = 7\n");
  EXPECT_FALSE(draws_rows());
  EXPECT_EQ(notes(),
            std::vector<std::string>{"the bootstrap draws seeds only: the test rows of ub-smoe and fedit differ "
                                     "by data.files.split_seed"});
  const auto text = text_report(study_, compare(study_));
  EXPECT_NE(text.find("data.files.split_seed: 42 (fedit); 7 (ub-smoe)\n"), text.npos) << text;
  study_.free = {"data.files"};
  EXPECT_FALSE(draws_rows()) << "the arms may differ, their rows are still other rows";
  EXPECT_EQ(text_report(study_, compare(study_)).find("NOT ALIKE"), std::string::npos);
}

TEST_F(ComparisonOfRows, TheBootstrapDoesNotPairRowsOfOtherFiles) {
  for (auto& run : study_.runs) run.records->manifest = {{"files", {{{"path", "/d/test.jsonl"}, {"sha256", run.arm}}}}};
  EXPECT_FALSE(draws_rows());
  EXPECT_NE(notes().at(0).find("differ by file test.jsonl"), std::string::npos) << notes().at(0);
}

TEST_F(ComparisonOfRows, ANoteOnTheBootstrapNamesARemedyThatHelps) {
  study_.endpoint = "invalid_rate";
  EXPECT_EQ(notes(),
            std::vector<std::string>{"the bootstrap draws seeds only: single rows are not recorded for this measure"});
  study_.endpoint = "log_likelihood";
  for (const auto& run : study_.runs) fs::remove_all(run.records->folder / "items");
  EXPECT_EQ(notes(),
            std::vector<std::string>{"the bootstrap draws seeds only: evaluate.items = true records single rows"});
}

}  // namespace
}  // namespace evenkeel::report
