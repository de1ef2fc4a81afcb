#include "study/definition/load_study.h"

#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "base/plain/sealed.h"
#include "base/testing.h"
#include "fed/run/best_round.h"
#include "records/testing.h"
#include "study/definition/study_state.h"

namespace evenkeel::study {
namespace {

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
