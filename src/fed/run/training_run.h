/// \file  Begins, resumes and completes a federated fine-tuning run.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/system/interrupt.h"
#include "fed/run/experiment.h"
#include "fed/run/run_folder.h"
#include "fed/store/manifest.h"
#include "scoring/task_evaluation.h"

namespace evenkeel::fed {

/// A run with all clients in this process.
struct Run {
  Experiment experiment;
  RunFolder folder;
};

/// Callbacks while a run is built, before its folder is written. Each may be empty. They may throw to stop.
struct RunHooks {
  /// Receives the settled config before anything large is built.
  /// \param begun  the request that began the run; without settings for a new run
  std::function<void(const RunConfig& config, const BegunRequest& begun)> on_config{};
  /// Receives the server and clients, with loaded weights.
  std::function<void(const Experiment& experiment)> on_experiment{};
};

/// Begins a new run: checks the folder, builds server and clients, and writes config, partition and manifest.
/// \throws Error; the folder then holds no run
Run begin_run(const RunRequest& request, const RunHooks& hooks = {});

/// Resumes a run with the config in its folder. If no run began there (no folder, an empty one, or a run stopped before
/// its manifest was written), it begins one. The folder is changed only after all inputs are read and checked.
///
/// A request may change three things. `train.rounds=N` sets the number of rounds (fed/store/run_changes.h). The keys of
/// fed/store/changeable_keys.h get new values, which hold from the next round on. Settings of kArithmeticKeys
/// (fed/config/arithmetic.h) hold for this process only; model.compute_dtype = "auto" is then measured again. The run
/// goes on with the paths and revisions that it was settled with; request.base names a base model that was moved.
/// \param from_round  continue from this round instead of the last committed one
/// \throws kIo, kData, kCheckpoint when the folder holds something else, is in use or is damaged, or when an input file
/// is missing or has changed; kConfig naming each key that `request` would change
Run resume_run(const RunRequest& request, std::optional<int64_t> from_round = std::nullopt, const RunHooks& hooks = {});

/// Trains the remaining rounds, commits each, and evaluates as `[evaluate]` says. After an interruption or kill at any
/// point, a resumed run gives bit-identical results on any fabric if the same clients reply in each round.
/// \param folder  created or opened for the run of `server`
/// \param stop    called after every step and batch; returns true to stop
/// \return the scores of the last round
/// \throws Interrupted at a point from which the run can be resumed
std::vector<scoring::TaskScore> complete_run(const Server& server, Fabric& fabric, RunFolder& folder,
                                             const StopRequest& stop = {});

}  // namespace evenkeel::fed
