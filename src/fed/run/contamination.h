/// \file  Files that are both trained on and tested with, whatever they are called: paths, links and copies. Each is
/// told in a warning; scores on them say what was learnt by heart.
#pragma once

#include <filesystem>

#include "fed/run/experiment.h"

namespace evenkeel {

/// Warns of training files of any client or set that another one, or another task of the run, is tested with. A set's
/// own files are told when they are read (data/tasks/file_task.cpp); rows that a set holds out of them are none. Of
/// rows that are elsewhere nothing is known. Cost: a file is read only where a test file has its length.
void warn_of_contamination(const Experiment& e);

/// Warns of test files of `config` that the run in `folder` was trained on, as its manifest knows them: the latter need
/// not be there any more. \throws kCheckpoint when manifest or partition are damaged
void warn_of_training_on(const ExperimentConfig& config, const std::filesystem::path& folder);

}  // namespace evenkeel
