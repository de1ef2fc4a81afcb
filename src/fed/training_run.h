/// \file  A federated fine-tuning run from beginning, or from where it stopped, to end.
#pragma once

#include <filesystem>
#include <vector>

#include "fed/experiment.h"
#include "fed/run_folder.h"
#include "train/evaluation.h"

namespace evenkeel {

struct Run {
  Experiment experiment;
  RunFolder folder;
};

/// A new run: checks the folder, builds everything, writes config, partition and manifest. `config` need not be
/// resolved. \throws Error of whatever is wrong; the folder then holds no run.
Run begin_run(ExperimentConfig config);

/// A run begun earlier, with the config in its folder. Where none began yet (no folder, an empty one, or one in which a
/// run was stopped before its first round), one begins from `config`.
/// \throws kIo, kData when the folder holds something else, or a file the run was made with is gone or changed.
Run resume_run(const std::filesystem::path& folder, ExperimentConfig config);

/// Trains what is left of the rounds, committing each, and evaluates when `[evaluate]` says so. Interrupted or killed
/// anywhere, a resumed run ends with the same bits. \return the scores of the last round. \throws Interrupted at a safe
/// place.
std::vector<TaskScore> complete_run(Run& run);

}  // namespace evenkeel
