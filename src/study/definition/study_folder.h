/// \file  Creates, opens and changes the folder of a study: runs of several configs (arms), each with several seeds.
/// Several processes may execute runs of one study. The folder holds base.toml (the config that all runs start from, as
/// it was given), a folder for each arm with arm.toml (its config, with resolved paths), study.json (the state) and
/// study.toml (the study file, made from base.toml and study.json).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "study/definition/study_plan.h"

namespace evenkeel::study {

/// A study with its runs' configs.
struct Study {
  std::filesystem::path folder;
  StudyState state;
  std::vector<PlannedArm> arms;  ///< in the order of state.arms
  std::vector<PlannedRun> runs;  ///< in the order of state.runs
  StudyState opened{};           ///< study.json as open_study() read it; empty for a study that was not opened
};

/// Checks that a study can be created in the folder: it does not exist, or holds only files that an interrupted
/// create_study() left, locks and claims, and the folder `rows` of the Python package (fed/run/run_folder.h).
/// \throws kIo; the message says what the user can do
void check_new(const std::filesystem::path& folder);

/// Writes base.toml, the configs of the arms, study.json and study.toml, in this order: a folder without study.json
/// holds no study, and can be created again after a kill at any instant. If another process has created the study in
/// the meantime, its files are kept and nothing is compared: open_study() and extended() show whether it is the same
/// study.
/// \return true if this process has created it
/// \throws kIo as lock_state() and check_new(), and when a file cannot be read or written
bool create_study(const Study& study, const StudyRequest& request);

/// Reads a study and plans its runs from the configs of the arms and study.json.
/// \throws kIo, kCheckpoint as read_state(); kIo when base.toml or an arm's config is missing; kCheckpoint when it has
/// changed; kConfig as plan_runs()
Study open_study(const std::filesystem::path& folder);

/// Returns the study with the base model of all arms in the folder `base`, which state.moved_base then names. Compares
/// no files: check_study() in study/running/study_check.h does. Writes nothing.
/// \throws kConfig when the arms have several base models; kIo, kConfig as models::find_model_folder()
Study with_base(const Study& study, const std::string& base);

/// Returns an existing study with the changes of a request: more arms, more seeds, or other values of the keys
/// `reference`, `endpoint` and `free` of `[study]` (study/definition/study_file.h). Settings for all arms that the
/// study was created with (`--set`) need not be given again. A key with the same text as when the study was created
/// changes nothing (changes_of() in fed/store/run_request.h), so the study keeps its files when it is resumed from
/// another working folder. Writes nothing.
/// \throws kConfig naming what else differs
Study extended(const StudyRequest& request, const Study& study);
/// Returns the request with the arms and seeds of the state that it lacks, after its own.
StudyRequest with_added(StudyRequest request, const StudyState& state);
/// Writes the configs of new arms, and the changes of extended() into study.json and study.toml, under the lock. If
/// other processes have extended the study since open_study(), it is opened again, and the request is added to what
/// they have made of it. Nothing is written if that is refused.
/// \param study  the result of extended() for the request
/// \return the study as it was written
/// \throws as update_state(); after another process's extension as open_study(), extended(), check_endpoint() and
/// check_equal_functions(); kConfig when there are too many arms or runs together
Study save_extension(const StudyRequest& request, Study study);

/// Changes study.json under the lock. \return the new state \throws as lock_state() and read_state()
StudyState update_state(const std::filesystem::path& folder, const std::function<void(StudyState&)>& change);

}  // namespace evenkeel::study
