/// \file  Checks the runs of a study before the first one begins.
#pragma once

#include "study/running/dry_runs.h"

namespace evenkeel::study {

/// Checks that concurrent runs fit into memory together. With at_once = 1 it checks nothing: a run checks itself.
/// \param each       bytes that a run needs
/// \param available  bytes of main memory
/// \param at_once    number of concurrent runs; on GPUs it may be less than `jobs`, the value of --jobs
/// \throws kConfig naming both numbers
void check_runs_fit(int64_t each, int64_t available, int64_t at_once, int64_t jobs);

/// Checks the folders, the rows and the memory of the runs that are left. Changes nothing.
/// \param dry_runs  of `task`
/// \throws kIo, kConfig, kData, kCheckpoint naming the run or the arm
void check_study(const StudyCommand& command, const StudyTask& task, DryRuns& dry_runs);

}  // namespace evenkeel::study
