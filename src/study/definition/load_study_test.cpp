#include "study/definition/load_study.h"

#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "base/plain/sealed.h"
#include "base/testing.h"
#include "fed/run/best_round.h"
#include "fed/run/stored_config.h"
#include "records/testing.h"
#include "study/definition/study_plan.h"

namespace evenkeel::study {
namespace {

/// Returns a config with the seed 1, one round and that number of epochs.
std::string config_of(std::string_view epochs) {
  return concat("seed = 1\n[train]\nrounds = 1\nlocal_epochs = ", epochs, "\n");
}

/// Two arms with a finished run each.
struct TwoRuns {
  testing::TemporaryFolder temporary{};
  fs::path folder = temporary.path();
  StudyState state{.name = "s", .reference = "a", .seeds = {1}, .arms = {{"a", {}}, {"b", {}}}};

  TwoRuns() {
    for (const auto& [arm, epochs] : {std::pair{"a", "1.0"}, {"b", "0.5"}}) {
      state.runs.push_back({.arm = arm,
                            .seed = 1,
                            .folder = run_folder_name(arm, 1),
                            .state = RunState::kDone,
                            .config_sha256 = made(arm, epochs)});
      write_file_atomic(folder / arm / kArmFile, config_of(epochs));
    }
    write_state(folder, state);
  }

  /// Writes the run of an arm. \return its digest
  std::string made(const std::string& arm, std::string_view epochs) const {
    const auto run = folder / run_folder_name(arm, 1);
    remove_path(run);
    testing::write_run(run, config_of(epochs));
    const fed::EvaluationRecord record{1, "fedit", {.task = "t", .budget = 1, .log_likelihood = -1}};
    append_sealed(run / "evaluations.jsonl", record::write(record));
    return config_digest(fed::run_config(run));
  }
  std::string refused() const {
    return testing::refusal([&] { load_study(folder); });
  }
};

TEST(LoadStudy, ARunOfAnotherArmIsRefused) {
  const TwoRuns two;
  EXPECT_EQ(two.refused(), "no error");
  two.made("b", "1.0");
  EXPECT_NE(two.refused().find("b/seed-1 holds the run a:1 of the study, not b:1"), std::string::npos) << two.refused();
}

TEST(LoadStudy, ARunWithAnotherConfigThanItsArmIsRefused) {
  TwoRuns two;
  two.made("b", "0.75");
  EXPECT_NE(two.refused().find("b/seed-1 holds no run of arm b: train.local_epochs is 0.5, in the run 0.75"),
            std::string::npos)
      << two.refused();
  two.made("b", "0.5");
  two.state.runs[1].config_sha256 = "of an earlier version, which had other keys";
  write_state(two.folder, two.state);
  EXPECT_EQ(two.refused(), "no error");
}

TEST(LoadStudy, ARunThatWasNotScoredAfterItsLastRoundIsMissing) {
  const testing::TemporaryFolder temporary;
  const auto folder = temporary.path();
  StudyState state{.name = "s", .reference = "a", .seeds = {1}, .arms = {{"a", {}}, {"b", {}}, {"c", {}}}};
  for (const auto& [arm, round] : {std::pair{"a", 6}, {"b", 2}, {"c", 2}}) {
    const auto run = folder / run_folder_name(arm, 1);
    testing::write_run(run, "seed = 1\n[train]\nrounds = 6\n[method]\nname = \"fedit\"\n");
    fed::EvaluationRecord record{round, "fedit", {.task = "t", .budget = 1, .log_likelihood = -1}};
    append_sealed(run / "evaluations.jsonl", record::write(record));
    state.runs.push_back(
        {.arm = arm, .seed = 1, .folder = run_folder_name(arm, 1), .state = RunState::kDone, .config_sha256 = "c"});
  }
  fed::BestRound best{.tasks = {"t"}, .round = 2, .evaluated = {{2, -1}}, .stopped = {}};
  best.stopped = fed::EarlyStop{.round = 2, .rounds = 6, .patience = 1};
  write_sealed(folder / run_folder_name("c", 1) / "best.json", record::write(best));
  write_state(folder, state);
  const auto study = load_study(folder);
  EXPECT_EQ(study.find("a", 1)->missing, "");
  EXPECT_EQ(study.find("b", 1)->missing, "round 2 of 6");
  EXPECT_FALSE(study.find("b", 1)->records);
  EXPECT_EQ(study.find("c", 1)->missing, "") << "train.stop ended it";
  EXPECT_TRUE(study.find("c", 1)->records->stopped_early);
}

}  // namespace
}  // namespace evenkeel::study
