/// \file  Creates, opens and changes the folder of a study: runs of several configs (arms), each with several seeds.
/// Several processes may execute runs of one study. The folder holds base.toml (the config that all runs start from, as
/// it was given), a folder for each arm with arm.toml (its config, with settled paths), study.json (the state) and
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
};

/// Checks that a study can be created in the folder: it does not exist, is empty, or holds only files that an
/// interrupted create_study() left, and the folder `rows` of the Python package (fed/run/run_folder.h).
/// \throws kIo; the message says what the user can do
void check_new(const std::filesystem::path& folder);

/// Writes base.toml, the configs of the arms, study.json and study.toml, in this order: a folder without study.json
/// holds no study, and can be created again after a kill at any instant. If another process has created the study in
/// the meantime, its files are kept and nothing is compared: open_study() and extended() show whether it is the same
/// study.
/// \throws kIo as lock_state() and check_new(), and when a file cannot be read or written
void create_study(const Study& study, const StudyRequest& request);

/// Reads a study and plans its runs from the configs of the arms and study.json.
/// \throws kIo, kCheckpoint as read_state(); kIo when base.toml or an arm's config is missing; kCheckpoint when it has
/// changed; kConfig as plan_runs()
Study open_study(const std::filesystem::path& folder);

/// Returns a study with the base model of all arms in another folder, which its state then names. Nothing is compared:
/// check_study() in study/running/study_check.h compares the files with those of the runs. Writes nothing.
/// \throws kConfig when the arms have several base models; kIo, kConfig as models::find_model_folder()
Study with_base(const Study& study, const std::string& base);

/// Returns an existing study with the changes of a request: more arms, more seeds, or other values of the keys
/// `reference`, `endpoint` and `free` of `[study]` (study/definition/study_file.h). Settings for all arms that the
/// study was created with (`--set`) need not be given again. Keys that are asked for as at the beginning change nothing
/// (changes_of() in fed/store/run_request.h), so that the study goes on with its files from every working folder.
/// Writes nothing.
/// \throws kConfig naming what else differs
Study extended(const StudyRequest& request, const Study& study);
/// Writes the configs of new arms, and the changes of extended() into study.json and study.toml, under the lock. Runs
/// that other processes have added since open_study() are kept. \throws as update_state()
void save_extension(const Study& study);

/// Changes study.json under the lock. \return the new state \throws as lock_state() and read_state()
StudyState update_state(const std::filesystem::path& folder, const std::function<void(StudyState&)>& change);

}  // namespace evenkeel::study
