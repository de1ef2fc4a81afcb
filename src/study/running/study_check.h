/// \file  Checks the runs of a study before the first one begins.
#pragma once

#include "study/running/dry_runs.h"

namespace evenkeel::study {

/// Checks the folders, the rows and the memory of the runs that are left. Changes nothing.
/// \param dry_runs  of `task`
/// \throws kIo, kConfig, kData, kCheckpoint naming the run or the arm
void check_study(const StudyCommand& command, const StudyTask& task, DryRuns& dry_runs);

}  // namespace evenkeel::study
