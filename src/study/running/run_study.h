/// \file  Executes the runs of a study, each as a child process of this program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/system/interrupt.h"
#include "study/definition/job_slots.h"
#include "study/definition/study_folder.h"

namespace evenkeel::study {

/// A share of the runs, or of the runs that --only names, for job arrays: every `count`-th run, beginning with run
/// `index`.
struct Shard {
  int64_t index = 1, count = 1;  ///< index from 1 to count
  /// Parses a text such as "2/4". \throws kConfig when it is not of this form or out of range
  static Shard read(const std::string& text);
};

/// A command line of `evenkeel study`.
struct StudyCommand {
  std::filesystem::path file;
  std::filesystem::path out{};          ///< empty: runs/NAME
  std::vector<std::string> settings{};  ///< --set
  int64_t jobs = 1;                     ///< largest number of runs at the same time
  Shard shard{};
  std::vector<std::string> only{};  ///< "ARM:SEED"; empty: all
  bool resume = false;              ///< true: the folder may hold this study already
  std::string base{};               ///< folder that the base model was moved to; empty: it was not moved
  /// --method: methods in Python by name, each as FILE:CLASS.
  std::map<std::string, std::string> methods{};
};

/// Returns true if --only names the run.
bool is_named(const StudyCommand& command, const StudyRun& run);

/// A study and the runs that this process executes.
struct StudyTask {
  StudyRequest request;
  Study study;
  std::vector<size_t> mine;  ///< indices into study.state.runs
  bool is_new = false;       ///< true: its folder has not been created
  JobSlots slots;            ///< places of concurrent runs

  /// Returns StudyRun::label() of the runs that this process executes.
  std::vector<std::string> labels() const;
};

/// Reads the study file and the study's folder, and plans all runs. Changes nothing.
/// \throws kIo, kConfig, kCheckpoint as open_study(), with_base(), check_new(), plan_runs() and
/// check_equal_functions(); kIo when a base model of an existing study is missing
StudyTask plan_study(const StudyCommand& command);

/// Creates the study or writes what the request adds. If another process was first, its study is joined. This process
/// keeps its runs, even if their indices in the study change.
/// \throws kIo, kConfig, kCheckpoint as create_study(), open_study(), extended() and save_extension()
void save_study(StudyTask& task);

/// Executes the runs that are not done, one per slot at the same time, and resumes those that have begun.
/// A failed run is logged and recorded; the others continue.
/// \param stop  returns true to stop; the running runs then save their state
/// \return the state of the study afterwards
/// \throws Interrupted when stopped; kConfig when this machine lacks the device of the runs; kIo when another process
/// executes one of the runs
StudyState run_study(const StudyCommand& command, StudyTask task, const StopRequest& stop);

/// Returns the arguments of this program that resume the study in `folder`.
std::vector<std::string> resume_words(const StudyCommand& command, const std::filesystem::path& folder);

}  // namespace evenkeel::study
