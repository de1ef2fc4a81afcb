#include "study/running/study_check.h"

#include <algorithm>
#include <set>

#include "base/system/device.h"
#include "base/system/machine.h"
#include "base/system/process.h"
#include "fed/round/starting_adapter.h"
#include "fed/run/memory_estimate.h"
#include "fed/run/new_run_folder.h"
#include "fed/run/state_evaluation.h"
#include "fed/run/stored_config.h"
#include "fed/store/manifest.h"
#include "study/running/run_check.h"

namespace evenkeel::study {
namespace {

/// Returns the runs whose inputs are checked: every arm with its first remaining seed, and every seed with its first
/// arm. Each other run has the rows of one and the settings of another of these.
std::vector<size_t> runs_to_check(const StudyTask& task) {
  std::set<std::string> arms;
  std::set<int64_t> seeds;
  std::vector<size_t> chosen;
  for (const size_t i : task.mine) {
    const auto& run = task.study.state.runs[i];
    if (run.state == RunState::kDone) continue;
    const bool new_arm = arms.insert(run.arm).second, new_seed = seeds.insert(run.seed).second;
    if (new_arm || new_seed) chosen.push_back(i);
  }
  return chosen;
}

/// Checks that a run's method in Python has the source that the run was made with.
void check_method_source(const Json& manifest, const methods::MethodEntry& entry) {
  EK_CHECK(!fed::has_changed_method(manifest, entry, true), kConfig, entry.described->file,
           " is not the source of method ", entry.name, " that the run was made with: its sha256 is ",
           entry.described->sha256, "; put the file back, or choose another --out");
}

/// Checks that the input files, and the methods in Python, of all runs that have begun are unchanged: further runs
/// would be compared with them. A base that was moved has the same files where it is now.
/// \return the number of these runs
int64_t check_inputs_of_begun(const StudyTask& task) {
  const auto why_fixed = [](const std::filesystem::path&) {
    return std::string("runs of the study were made with it; put the file back, or choose another --out");
  };
  const auto& moved = task.study.state.moved_base;
  int64_t begun = 0;
  for (size_t i = 0; i < task.study.runs.size(); ++i) {
    const auto& run = task.study.state.runs[i];
    const auto folder = task.study.folder / run.folder;
    if (!fed::holds_run(folder)) continue;
    ++begun;
    try {
      const auto manifest = fed::read_manifest(folder);
      check_method_source(manifest, task.study.runs[i].config->method.entry());
      const auto base = models::find_model_folder(moved.empty() ? fed::run_config(folder)->model.path : moved);
      fed::check_input_files(folder, manifest, base, why_fixed);
    } catch (const Error& error) {
      throw error.with_context(run.label());
    }
  }
  return begun;
}

void check_inputs(DryRuns& dry_runs, const StudyTask& task, size_t run, int64_t jobs) {
  try {
    const auto [experiment, has_known_rows] = dry_runs.make(run);
    fed::check_start(experiment.server);
    if (!has_known_rows) fed::check_evaluation(experiment);
    check_runs_fit(fed::memory_plan(experiment).needed(), machine::memory().available, task.slots.count(), jobs);
  } catch (const Error& error) {
    throw error.with_context(task.study.state.runs[run].label());
  }
}

}  // namespace

void check_runs_fit(int64_t each, int64_t available, int64_t at_once, int64_t jobs) {
  EK_CHECK(at_once == 1 || each <= available / at_once, kConfig, "--jobs ", jobs, ": ", at_once,
           " runs at once, each needs ", machine::bytes_text(each), ", available are ", machine::bytes_text(available),
           ", allowed: up to ", std::max<int64_t>(1, available / std::max<int64_t>(1, each)));
}

void check_study(const StudyCommand& command, const StudyTask& task, DryRuns& dry_runs) {
  if (!task.is_new)
    for (const size_t run : task.mine) check_run(task.study, run, is_named(command, task.study.state.runs[run]));
  const auto runs = runs_to_check(task);
  if (!task.is_new && (!runs.empty() || !command.base.empty())) {
    const auto begun = check_inputs_of_begun(task);
    EK_CHECK(begun > 0 || command.base.empty(), kConfig, "--base is ", command.base, ", but no run of ",
             task.study.folder.string(), " has begun, whose base it could be compared with: choose another --out");
  }
  for (const size_t run : runs) check_inputs(dry_runs, task, run, command.jobs);
  give_back_freed_memory();
}

}  // namespace evenkeel::study
