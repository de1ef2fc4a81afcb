/// \file  Warns of files that are used for both training and testing, under any path, link or copy. Scores on such
/// files measure memorisation.
#pragma once

#include <filesystem>

#include "fed/run/experiment.h"

namespace evenkeel::fed {

/// Warns of training files that are test files of another client, another set or another task of the run. Overlap
/// within one set is reported when the set is read (data/tasks/file_task.cpp). Rows that a set holds out of its own
/// files do not count, and rows at nodes are not known. Cost: a file is read only if a test file has the same length.
void warn_of_contamination(const Experiment& e);

/// Warns of test files of `config` that the run in `folder` was trained on. The training files are known by their
/// fingerprints in the manifest and need not exist any more.
/// \throws kCheckpoint when manifest or partition are damaged
void warn_of_training_on(const RunConfig& config, const std::filesystem::path& folder);

}  // namespace evenkeel::fed
