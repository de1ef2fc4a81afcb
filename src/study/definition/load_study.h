/// \file  Reads the runs of a study's folder.
#pragma once

#include <filesystem>

#include "comparison/compared_runs.h"

namespace evenkeel::study {

/// Reads the runs of a study's folder. A run is missing, without records, if study.json says that it is not done, or if
/// its folder holds no run, a damaged run, or no score after the last round.
/// \throws kIo, kCheckpoint as read_state(); kData if a folder holds a run of another seed, the run of another arm, or
/// one with another config than ARM/arm.toml has, except for paths and for keys that a resumed run may change
comparison::StudyRuns load_study(const std::filesystem::path& folder);

}  // namespace evenkeel::study
