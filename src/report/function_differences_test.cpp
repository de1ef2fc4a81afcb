// What changes the function that is trained or scored is named in every format.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/plain/json.h"
#include "comparison/comparison.h"
#include "comparison/testing.h"
#include "report/study_report.h"

namespace evenkeel::report {
namespace {

using comparison::StudyRuns, comparison::compare;
using testing::study_of, testing::give_config, testing::give_modes, testing::kReference;

/// Gives the runs of an arm the gates that the last round used.
void give_gates(StudyRuns& study, const std::string& arm, bool renormalised) {
  for (auto& run : study.runs)
    if (run.arm == arm) run.records->rounds.back().gates_sum_to_one = renormalised;
}

const std::vector<double> kBetter{-0.5, -0.71, -0.4, -0.6};

TEST(FunctionDifferences, GatingThatIsNotEqualIsNamedInTheSentenceTheTablesAndEveryFormat) {
  auto study = study_of({{"fedit", kReference}, {"a3smoe", kReference}, {"ub-smoe", kBetter}});
  for (const auto* arm : {"fedit", "a3smoe"}) give_gates(study, arm, false);
  give_gates(study, "ub-smoe", true);
  study.free = {"method.gate_norm", "method"};
  const auto compared = compare(study);
  const auto& said = compared.served[0].conclusions;
  EXPECT_EQ(said[0], "Difference of a3smoe to fedit is 0 in every pair.");
  EXPECT_EQ(said[1],
            "A difference of ub-smoe to fedit was shown at budget 0.5 (+0.75, better), 1 (+0.75, better); the two also "
            "differ in gating (renormalised; fedit: not renormalised).");
  const auto words = [](const std::string& text) {
    std::istringstream stream(text);
    std::string all;
    for (std::string word; stream >> word;) all += word + ' ';
    return all;
  };
  const std::string note = "Arms differ in gating: not renormalised (fedit, a3smoe); renormalised (ub-smoe).";
  for (const auto& text :
       {text_report(study, compared), markdown_report(study, compared), latex_report(study, compared)}) {
    EXPECT_NE(words(text).find(note), std::string::npos) << text;
    EXPECT_NE(words(text).find("gating (renormalised; fedit: not renormalised)"), std::string::npos) << text;
  }
  const auto csv = csv_report(study, compared);
  EXPECT_NE(csv.find("ub-smoe,1,2,run,,0.5,0,a,log_likelihood,-1,gating: renormalised (fedit: not renormalised)\n"),
            csv.npos)
      << csv;
  EXPECT_NE(csv.find("a3smoe,1,2,run,,0.5,0,a,log_likelihood,-1.5,\n"), csv.npos) << csv;
  const auto json = parse_json(json_report(study, compared), "report");
  const auto& served = json["served"][0];
  EXPECT_EQ(served["function_differences"][0]["what"], "gating");
  EXPECT_EQ(served["arms"][2]["function_differences"][0]["reference_value"], "not renormalised");
  EXPECT_TRUE(served["arms"][1]["function_differences"].empty());
  const auto all = comparison::differences(study);
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const auto& one) { return one.what == "gating"; }))
      << "what a study lets differ is named all the same";
}

TEST(FunctionDifferences, KeysThatChangeTheFunctionAreNamedAlthoughTheStudyFreesThem) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", kBetter}});
  for (auto& run : study.runs)
    give_config(*run.records,
                concat("[method]\nname = \"", run.arm, "\"\n[lora]\nalpha = ", run.arm == "fedit" ? "8.0" : "16.0",
                       "\n[train.optimizer]\nlr = ", run.arm == "fedit" ? "1e-3" : "1e-4", "\n"));
  study.free = {"lora"};
  const auto compared = compare(study);
  const auto& arm = compared.served[0].arms[1];
  ASSERT_EQ(arm.unlike.size(), 1u);
  EXPECT_EQ(arm.unlike[0].what, "lora.alpha");
  EXPECT_EQ(arm.unlike[0].own + '|' + arm.unlike[0].others, "16.0|8.0");
  EXPECT_NE(compared.served[0].conclusions[0].find("also differ in lora.alpha (16.0; fedit: 8.0)"), std::string::npos);
}

TEST(FunctionDifferences, OptionsOfAMethodAreComparedBetweenArmsOfThatMethod) {
  auto study = study_of({{"fedit", kReference}, {"full", kBetter}, {"no-phi", kBetter}});
  for (auto& run : study.runs)
    give_config(*run.records, run.arm == "fedit" ? "[method]\nname = \"fedit\"\n"
                              : run.arm == "full"
                                  ? "[method]\nname = \"ub-smoe\"\n"
                                  : "[method]\nname = \"ub-smoe\"\n[method.ub-smoe]\nphi_at_eval = false\n");
  const auto compared = compare(study);
  ASSERT_EQ(compared.served[0].unlike.size(), 1u);
  EXPECT_EQ(compared.served[0].unlike[0].what, "method.ub-smoe.phi_at_eval");
  EXPECT_TRUE(compared.served[0].arms[1].unlike.empty()) << "fedit has no such option";
  study.reference = "full";
  EXPECT_EQ(compare(study).served[0].arms[2].unlike.at(0).own, "false");
}

TEST(FunctionDifferences, ExpertsPerTokenOfTrainingAndOfScoresAreNamed) {
  auto study = study_of({{"fedit", kReference}, {"flora", kReference}});
  for (auto& run : study.runs) {
    const bool ranks = run.arm == "flora";
    for (const auto& [budget, top_k] : {std::pair{0.5, 4}, {1.0, 8}})
      run.records->rounds.back().clients.emplace_back().budget = budget,
      run.records->rounds.back().clients.back().top_k = ranks ? 8 : top_k;
    for (auto& evaluation : run.records->evaluations)
      evaluation.score.top_k = static_cast<int64_t>(8 * evaluation.score.budget);
    if (ranks) give_modes(run, 0);
    for (auto& evaluation : run.records->evaluations)
      if (evaluation.score.rank_eval_mode == "a") evaluation.score.top_k = 8;
  }
  const auto compared = compare(study);
  const auto text = [](const comparison::ArmResult& arm) {
    std::string all;
    for (const auto& [what, own, others] : arm.unlike) all += concat(what, ": ", own, " | ", others, '\n');
    return all;
  };
  const auto& arms = compared.served[0].arms;
  ASSERT_EQ(arms.size(), 3u);
  EXPECT_EQ(text(arms[1]),
            "K in training: 8 | 4, 8\nK of scores: 8 | 4, 8\nrank of scores: that of the budget | that of the whole "
            "adapter\n");
  EXPECT_EQ(text(arms[2]), "K in training: 8 | 4, 8\n");
}

TEST(FunctionDifferences, SmallLoraScalesAreToldApart) {
  auto study = study_of({{"fedit", kReference}, {"flexlora", kReference}});
  for (auto& run : study.runs) {
    give_config(*run.records, "[lora]\nalpha = 0.01\nrank = 16\n");
    auto& client = run.records->rounds.back().clients.emplace_back();
    client.budget = 1;
    client.rank = run.arm == "fedit" ? 16 : 8;
  }
  const auto compared = compare(study);
  ASSERT_EQ(compared.served[0].arms[1].unlike.size(), 1u);
  EXPECT_EQ(compared.served[0].arms[1].unlike[0].what, "LoRA scale in training");
}

TEST(FunctionDifferences, LoraScalesOfClientsAreNamedAtEqualAlphaAndRank) {
  auto study = study_of({{"fedit", kReference}, {"flexlora", kReference}, {"const", kReference}});
  for (auto& run : study.runs) {
    give_config(*run.records, concat("[lora]\nalpha = 32.0\nrank = 16\nlora_scale_mode = \"",
                                     run.arm == "const" ? "const_scale" : "fixed_alpha", "\"\n"));
    for (const auto& [budget, rank] : {std::pair{0.25, 6}, {1.0, 16}}) {
      auto& client = run.records->rounds.back().clients.emplace_back();
      client.budget = budget;
      client.rank = run.arm == "fedit" ? 16 : rank;
    }
  }
  study.free = {"lora"};
  const auto compared = compare(study);
  const auto scale_of = [](const comparison::ArmResult& arm) {
    for (const auto& [what, own, others] : arm.unlike)
      if (what == "LoRA scale in training") return concat(own, " | ", others);
    return std::string("as the reference");
  };
  EXPECT_EQ(scale_of(compared.served[0].arms[1]), "5.33333, 2 | 2");
  EXPECT_EQ(scale_of(compared.served[0].arms[2]), "as the reference");
}

TEST(FunctionDifferences, AreComparedSeedBySeed) {
  auto study = study_of({{"fedit", kReference}, {"flora", kReference}, {"late", kReference}});
  const std::vector<int64_t> top_ks{8, 1, 8, 4};
  for (auto& run : study.runs) {
    give_config(*run.records, "[lora]\nalpha = 32.0\nrank = 16\n");
    auto& client = run.records->rounds.back().clients.emplace_back();
    client.budget = 1;
    client.top_k = top_ks.at(static_cast<size_t>(run.seed - 1));
    client.rank = run.arm == "flora" && run.seed < 3 ? 8 : 16;
    if (run.arm == "late" && run.seed == 4) run.records.reset();
  }
  const auto compared = compare(study);
  const auto& arms = compared.served[0].arms;
  ASSERT_EQ(arms[1].unlike.size(), 1u) << "K differs by seed alike in all arms";
  EXPECT_EQ(arms[1].unlike[0].what, "LoRA scale in training");
  EXPECT_EQ(arms[1].unlike[0].own + " | " + arms[1].unlike[0].others, "4; 4; 2 by seed | 2");
  EXPECT_TRUE(arms[2].unlike.empty()) << "a missing run is no difference";
}

TEST(FunctionDifferences, ListsOfSeedsAreToldApart) {
  auto study = study_of({{"fedit", {-1, -1.2, -0.9}}, {"ub-smoe", {-0.5, -0.71, -0.4}}});
  const std::vector<std::vector<int64_t>> top_ks{{1, 2}, {4, 8}, {1, 8}};  // by seed, of the budgets 0.5 and 1
  for (auto& run : study.runs)
    for (const size_t i : {0, 1}) {
      auto& client = run.records->rounds.back().clients.emplace_back();
      client.budget = i == 0 ? 0.5 : 1;
      client.top_k = run.arm == "fedit" ? 8 : top_ks.at(static_cast<size_t>(run.seed - 1))[i];
    }
  const auto unlike = compare(study).served[0].arms[1].unlike;
  ASSERT_EQ(unlike.size(), 1u);
  EXPECT_EQ(unlike[0].own + " | " + unlike[0].others, "1, 2; 4, 8; 1, 8 by seed | 8");
}

TEST(FunctionDifferences, ShowsEveryMeasureThatSomeTaskHas) {
  auto study = study_of({{"fedit", kReference}, {"ub-smoe", kBetter}});
  const auto compared = compare(study);
  std::vector<scoring::TaskScore> scores;
  for (const auto& evaluation : study.runs[0].records->evaluations) scores.push_back(evaluation.score);
  EXPECT_EQ(compared.beside.size() + 1, scoring::measures_of(scores).size());
  const auto text = text_report(study, compared), csv = csv_report(study, compared);
  for (const auto* measure : scoring::measures_of(scores)) {
    if (measure != compared.endpoint) {
      EXPECT_NE(text.find(std::string(measure->short_title)), text.npos) << measure->name;
    }
    EXPECT_NE(csv.find(concat(',', measure->name, ',')), csv.npos) << measure->name;
  }
}

/// Studies of many seeds fit the page in every format.
TEST(FunctionDifferences, TwoEightAndFortySeedsFitThePage) {
  for (const size_t seeds : {2, 8, 40}) {
    std::vector<double> reference, other;
    for (size_t i = 0; i < seeds; ++i) {
      reference.push_back(-1 - 0.01 * static_cast<double>(i % 7));
      other.push_back(-1.02 - 0.01 * static_cast<double>(i % 5));
    }
    auto study = study_of({{"fedit", reference}, {"a-rather-long-name-of-an-arm", other}});
    give_gates(study, "fedit", false);
    give_gates(study, "a-rather-long-name-of-an-arm", true);
    const auto compared = compare(study);
    const auto text = text_report(study, compared);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
    EXPECT_NE(text.find("gating"), text.npos);
    const auto& mean = compared.served[0].arms[0].budgets[0];
    EXPECT_EQ(mean.complete, static_cast<int64_t>(seeds));
    const double half = (mean.interval->high - mean.interval->low) / 2;
    const double factor = seeds == 2 ? 12.706 : seeds == 8 ? 2.3646 : 2.0227;  // t(0.975, n - 1)
    EXPECT_NEAR(half, factor * *mean.deviation / std::sqrt(static_cast<double>(seeds)), 1e-4 * half) << seeds;
    const auto latex = latex_report(study, compared);
    EXPECT_NE(latex.find("Arms differ in gating"), latex.npos);
  }
}

}  // namespace
}  // namespace evenkeel::report
