/// \file  Reads the runs of a study's folder.
#pragma once

#include <filesystem>

#include "comparison/compared_runs.h"

namespace evenkeel::study {

/// Reads the runs of a study's folder. A run is missing if study.json says that it is not done, or if its folder holds
/// no run, a damaged one, or no score after the last round.
/// \throws kIo, kCheckpoint as read_state(); kData if a folder holds a run of another seed or config
comparison::StudyRuns load_study(const std::filesystem::path& folder);

}  // namespace evenkeel::study
