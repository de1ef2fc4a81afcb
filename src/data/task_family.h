/// \file  Defines a task family: its tasks, the options for loading rows, and the functions that load them. The
/// registry of families is data/tasks.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/example.h"
#include "data/file_sets.h"
#include "data/prompt.h"
#include "data/row_files.h"
#include "data/tasks/telequad_config.h"

namespace evenkeel::data {

/// Describes one task.
struct TaskInfo {
  std::string name;                  ///< name in configs, e.g. "arc_c" or "builtin:facts"
  std::string file;                  ///< file of the test rows, relative to the family's folder; empty if there is none
  std::vector<std::string> answers;  ///< allowed answers, in order of preference at ties; empty: any answer, or the
                                     ///< row's own options
  std::string source;                ///< description in one line, for `evenkeel list tasks`
  Scoring scoring = Scoring::kChoice;  ///< how answers are scored
  std::string family{};                ///< name of its family; set by the registry
  bool tests = true;                   ///< false: the task has training rows only
  /// Returns true if answers are free text that is compared with references.
  bool free_text() const { return scoring == Scoring::kF1 || scoring == Scoring::kExact; }
};

/// Selects the rows to load.
struct RowOptions {
  std::filesystem::path path{};  ///< folder of the family's files, or the parent of a folder that has the family's name
  int64_t limit = 0;             ///< largest number of rows; 0: all (generated training rows: the default number)
  uint64_t seed = 42;            ///< seed of the draw for `limit` and of the order of generated test rows
  std::string label = "label";   ///< key of a row that Row::label is read from: one of TaskFamily::label_keys
  TelequadConfig telequad{};     ///< settings of the task family telequad
  FilesConfig files{};           ///< the user's own files
  /// Prompt template that the rows are for; kPaper is the template of the UB-SMoE paper. kChat keeps conversations as
  /// turns (FileRows::conversations).
  PromptTemplate form = PromptTemplate::kPaper;
};

/// Defines a task family: one entry of the registry. The registry passes the folder of this family as `path`.
struct TaskFamily {
  std::string_view name;  ///< name in data.task
  /// Returns the tasks of the family, in the order of reports. Required.
  std::vector<TaskInfo> (*tasks)(const RowOptions& from) = nullptr;
  /// Returns all training rows of the family. The registry applies RowOptions::limit afterwards, unless `generates` is
  /// set: then this function applies it. Required.
  TaskRows (*training_rows)(const RowOptions& from) = nullptr;
  /// Returns all test rows of a task. The registry applies RowOptions::limit afterwards. Required.
  TaskRows (*test_rows)(const TaskInfo& task, const RowOptions& from) = nullptr;
  std::vector<std::string_view> label_keys = {"label"};  ///< accepted values of RowOptions::label
  bool in_folder = false;  ///< true: rows are read from files in `path`, which the user must set
  /// True: rows are generated. training_rows() makes as many rows as the limit; test_rows() makes all, and the registry
  /// keeps the first ones up to the limit.
  bool generates = false;
  bool in_context = false;  ///< true: test prompts contain documents and may be longer than any training row
  /// Returns the files of a task's test rows, for the manifest. If null, the registry uses TaskInfo::file.
  std::vector<std::string> (*test_files)(const TaskInfo& task, const RowOptions& from) = nullptr;
};

}  // namespace evenkeel::data
