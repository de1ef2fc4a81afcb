/// \file  A federated fine-tuning run from beginning, or from where it stopped, to end.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/system/interrupt.h"
#include "fed/run/experiment.h"
#include "fed/run/run_folder.h"
#include "scoring/task_evaluation.h"

namespace evenkeel {

/// A run whose clients are on this machine.
struct Run {
  Experiment experiment;
  RunFolder folder;
};

/// Told while a run is made, before anything in its folder says that it is there; each may be empty. May throw.
struct RunHooks {
  /// Settled; nothing large is built yet. \param begun_with  settings of the command that began a run that goes on
  std::function<void(const ExperimentConfig& config, const std::vector<std::string>& begun_with)> on_config{};
  std::function<void(const Experiment& experiment)> on_experiment{};
};

/// A new run: checks the folder, builds everything, writes config, partition and manifest. \throws Error of whatever is
/// wrong; the folder then holds no run.
Run begin_run(const RunRequest& request, const RunHooks& hooks = {});

/// \param as_run  what such a run makes of a config beside settling it; empty: nothing
/// \throws kConfig naming the keys that a resumed run is asked to change. Settings it was begun with need not be
/// repeated. \return those
std::vector<std::string> refuse_changes(const RunRequest& request, const RunFolder& folder,
                                        const std::function<ExperimentConfig(ExperimentConfig)>& as_run = {});

/// A run begun earlier, with the config in its folder. Where none began yet (no folder, an empty one, or one in which a
/// run was stopped before its first round), one begins. Nothing in the folder is changed before everything that the run
/// needs was read and checked. \param from_round  go on from this round instead of the last committed one
/// \throws kIo, kData, kCheckpoint when the folder holds something else, is in use or damaged, or a file the run was
/// made with is gone or changed; kConfig naming each key that `request` asks for with another value than the run has.
/// What it leaves out of the settings that the run was begun with is not asked for. Arithmetic alone it may change,
/// for as long as it says so: settings of model.compute_dtype (auto: measured here and now), model.products,
/// model.device and model.engine. With `train.rounds=N` among the settings of `request` the run has N rounds from now
/// on (fed/store/run_changes.h).
Run resume_run(const RunRequest& request, std::optional<int64_t> from_round = std::nullopt, const RunHooks& hooks = {});

/// Trains what is left of the rounds, committing each, and evaluates when `[evaluate]` says so. Interrupted or killed
/// anywhere, a resumed run ends with the same bits, whatever `fabric` reaches the clients then. \param folder  begun or
/// opened for the run of `server` \param stop  asked after every step and batch
/// \return the scores of the last round. \throws Interrupted at a safe place.
std::vector<TaskScore> complete_run(const Server& server, Fabric& fabric, RunFolder& folder,
                                    const StopRequest& stop = {});

}  // namespace evenkeel
