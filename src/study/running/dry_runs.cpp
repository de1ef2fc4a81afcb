#include "study/running/dry_runs.h"

#include <algorithm>

#include "fed/store/changed_keys.h"

namespace evenkeel::study {
namespace {

/// Returns true if no key differs that the rows could depend on.
bool read_the_same_rows(const fed::RunConfig& one, const fed::RunConfig& other) {
  const auto changes = fed::changed_keys(*one, *other);
  return std::all_of(changes.begin(), changes.end(), [](const fed::ChangedKey& change) {
    return change.key == "name" || change.key.starts_with("method.") || change.key.starts_with("train.");
  });
}

}  // namespace

fed::RunConfig config_of_run(const StudyTask& task, size_t run) {
  return task.study.runs[run].config.with([&](fed::ExperimentConfig& values) {
    values.output.dir = (task.study.folder / task.study.state.runs[run].folder).string();
    auto& cache = values.model.base_cache;  // the default of the run, whose study may not have its state file yet
    if (cache.empty()) cache = fed::base_cache_beside(task.study.folder).string();
  });
}

DryRuns::Made DryRuns::make(size_t run) {
  const auto config = config_of_run(*task_, run);
  if (first_ && read_the_same_rows(config, *first_)) return {fed::make_experiment_of_rows(config, rows_), true};
  auto made = fed::make_experiment(config, fed::Purpose::kDryRun);
  if (!first_) {
    first_ = config;
    rows_ = made.fabric.shards;
  }
  return {std::move(made), false};
}

}  // namespace evenkeel::study
