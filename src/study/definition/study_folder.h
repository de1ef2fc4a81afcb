/// \file  The folder of a study: created once, joined by every process that makes some of its runs.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/system/folder_lock.h"
#include "study/definition/study_plan.h"

namespace evenkeel::study {

/// Locks the folder for one change of study.json; waits up to half a minute for another process to finish its own.
/// \throws kIo naming the process that holds it
FolderLock lock_state(const std::filesystem::path& folder);

/// A study with its runs' configs.
struct Study {
  std::filesystem::path folder;
  StudyState state;
  std::vector<PlannedRun> runs;  ///< in the order of state.runs
};

/// Checks that a study can be created in the folder: it does not exist, is empty, or holds what a killed creation left.
/// \throws kIo naming the next step
void check_new(const std::filesystem::path& folder);

/// Writes base.toml and study.json. If another process has created the study meanwhile, that one stays.
void create_study(const std::filesystem::path& folder, const StudyRequest& request, const StudyState& state);

/// Reads a study and plans its runs from base.toml and study.json.
/// \throws kIo, kCheckpoint as read_state(), and when base.toml has changed; kConfig as plan_runs()
Study open_study(const std::filesystem::path& folder);

/// Compares a request with an existing study and adds what it adds: arms, seeds, another reference, endpoint or free.
/// Common settings of the study need not be repeated. Writes nothing.
/// \throws kConfig naming what else differs
Study extended(const StudyRequest& request, const Study& study);
/// Writes what extended() has added into study.json and study.toml.
void save_extension(const Study& study);

/// Changes study.json under the lock. \return the new state
StudyState update_state(const std::filesystem::path& folder, const std::function<void(StudyState&)>& change);

}  // namespace evenkeel::study
