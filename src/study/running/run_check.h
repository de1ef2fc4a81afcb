/// \file  Checks the folder of a study's run before any run starts.
#pragma once

#include <filesystem>

#include "study/definition/study_folder.h"

namespace evenkeel::study {

/// Checks that the folder of a run is empty or holds this run: its config and, if the run is done, all rounds and the
/// files of commit, scores and adapter. Waits up to 10 seconds for a process that is about to leave the folder.
/// \param index  index of the run in study.state.runs
/// \param again  true: a done run whose folder was deleted may be repeated
/// \throws kIo when the folder is in use, missing or partly deleted; kConfig when it holds a run of another study;
/// kCheckpoint when its files are damaged. The message names the run and says what the user can do.
void check_run(const Study& study, size_t index, bool again);

/// Returns the number of rounds that a run has committed; 0 when it has not begun. Reads rounds.jsonl.
int64_t rounds_done(const std::filesystem::path& run);
/// Returns the length of rounds.jsonl in bytes; 0 when it does not exist.
uint64_t records_size(const std::filesystem::path& run);

}  // namespace evenkeel::study
