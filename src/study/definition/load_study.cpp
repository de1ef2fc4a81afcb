#include "study/definition/load_study.h"

#include <string>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "fed/run/new_run_folder.h"
#include "study/definition/study_state.h"

namespace evenkeel::study {
namespace {

/// Returns why a run in this state is missing; empty if it is done.
std::string why_missing(const StudyRun& run) {
  switch (run.state) {
    case RunState::kPlanned:
      return "not run yet";
    case RunState::kRunning:
      return "not finished";
    case RunState::kFailed:
      return concat("failed: ", run.error.value_or("unknown reason"));
    case RunState::kDone:
      break;
  }
  return {};
}

/// Reads the records of a run, or sets `run.missing` to the reason why there are none.
void read_records(const fs::path& folder, comparison::ArmRun& run) try {
  if (!fed::holds_run(folder)) {
    run.missing = concat(folder.string(), " holds no run");
    return;
  }
  run.records = records::load_run(folder);
  const auto last = run.records->last_evaluated();
  if (last < 0) run.missing = concat(folder.string(), " holds no score");
  if (run.records->lacks_final_scores()) run.missing = concat("round ", last, " of ", run.records->rounds_to_do);
} catch (const Error& error) {
  run.missing = error.what();
}

comparison::ArmRun loaded(const fs::path& folder, const StudyRun& planned) {
  comparison::ArmRun run{.arm = planned.arm, .seed = planned.seed, .missing = why_missing(planned)};
  if (run.missing.empty()) read_records(folder / planned.folder, run);
  if (!run.missing.empty()) run.records.reset();
  if (!run.records) return run;
  EK_CHECK(run.records->seed == run.seed, kData, (folder / planned.folder).string(), " holds a run of seed ",
           run.records->seed, ", the study's has seed ", run.seed, ": it is a run of another study");
  run.records->label = planned.folder;
  run.records->arm = planned.arm;
  return run;
}

}  // namespace

comparison::StudyRuns load_study(const fs::path& folder) {
  const auto state = read_state(folder);
  comparison::StudyRuns study{.name = state.name,
                              .reference = state.reference,
                              .endpoint = std::string(config::name_of(state.endpoint)),
                              .arms = {},
                              .seeds = state.seeds,
                              .runs = {},
                              .free = state.free};
  for (const auto& arm : state.arms) study.arms.push_back(arm.name);
  for (const auto& arm : study.arms)
    for (const int64_t seed : study.seeds) study.runs.push_back(loaded(folder, *state.find(arm, seed)));
  return study;
}

}  // namespace evenkeel::study
