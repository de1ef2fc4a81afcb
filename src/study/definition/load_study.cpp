#include "study/definition/load_study.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "fed/config/config_paths.h"
#include "fed/run/new_run_folder.h"
#include "fed/run/stored_config.h"
#include "fed/store/changeable_keys.h"
#include "fed/store/manifest.h"
#include "study/definition/study_plan.h"

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
  if (run.records->lacks_final_scores()) run.missing = concat("round ", last, " of ", run.records->total_rounds);
} catch (const Error& error) {
  run.missing = error.what();
}

/// Returns the keys in which a run was asked for otherwise than its arm has them. Paths are not compared, because files
/// may have moved.
/// \param arm  the arm's config
std::vector<fed::ChangedKey> other_keys(const fs::path& folder, const fed::RunConfig& run, fed::ExperimentConfig arm) {
  const auto then = fed::begun_request(folder).config;
  arm.seed = run->seed;
  fed::take_paths(arm, then, [](std::string_view) { return true; });
  auto changes = fed::changes_of(arm, then, run);
  std::erase_if(changes, [&](const auto& change) { return fed::why_not_changeable(change.key, run, 0).empty(); });
  return changes;
}

/// Checks that a folder holds the run that the study planned for it.
void check_is_planned(const fs::path& study, const StudyState& state, const StudyRun& planned) {
  const auto folder = study / planned.folder;
  const auto config = fed::run_config(folder);
  const auto digest = config_digest(config);
  if (digest == planned.config_sha256) return;
  const auto of = std::find_if(state.runs.begin(), state.runs.end(),
                               [&](const StudyRun& other) { return other.config_sha256 == digest; });
  EK_CHECK(of == state.runs.end(), kData, folder.string(), " holds the run ", of->label(), " of the study, not ",
           planned.label(), "; move it away");
  const auto file = study / planned.arm / kArmFile;
  if (!path_exists(file)) return;
  const auto arm = fed::ExperimentConfig::read(config::Table::parse(read_file(file), file.string()));
  const auto changes = other_keys(folder, config, arm);
  EK_CHECK(changes.empty(), kData, folder.string(), " holds no run of arm ", planned.arm, ": ",
           join(fed::lines_of(changes), "; "), "; move it away");
}

comparison::ArmRun loaded(const fs::path& folder, const StudyState& state, const StudyRun& planned) {
  comparison::ArmRun run{.arm = planned.arm, .seed = planned.seed, .missing = why_missing(planned)};
  if (run.missing.empty()) read_records(folder / planned.folder, run);
  if (!run.missing.empty()) run.records.reset();
  if (!run.records) return run;
  EK_CHECK(run.records->seed == run.seed, kData, (folder / planned.folder).string(), " holds a run of seed ",
           run.records->seed, ", the study's has seed ", run.seed, ": it is a run of another study");
  check_is_planned(folder, state, planned);
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
    for (const int64_t seed : study.seeds) study.runs.push_back(loaded(folder, state, *state.find(arm, seed)));
  return study;
}

}  // namespace evenkeel::study
