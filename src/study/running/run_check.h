/// \file  Checks the folder of a study's run before any run starts.
#pragma once

#include <filesystem>

#include "study/definition/study_folder.h"

namespace evenkeel::study {

/// Checks that the folder of a run holds nothing, or that run, whole as far as it goes: its config, and of a done run
/// all rounds and the adapter. Waits some seconds for a process that is just ending there.
/// \param index  of the run in study.state.runs
/// \param again  true: a done run whose folder is gone may be made again
/// \throws kIo when it is in use, gone or half deleted; kConfig when it is a run of another study; kCheckpoint when
/// its files are damaged. The message names the run and the next step.
void check_run(const Study& study, size_t index, bool again);

/// Returns the number of rounds that a run has committed; 0 when it has not begun. Reads rounds.jsonl.
int64_t rounds_done(const std::filesystem::path& run);
/// Returns the length of rounds.jsonl in bytes; 0 when it does not exist.
uint64_t records_size(const std::filesystem::path& run);

}  // namespace evenkeel::study
