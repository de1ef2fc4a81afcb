/// \file  What a family of tasks is: its tasks, which rows are asked for, and the functions that read them. The
/// registry of all families is data/tasks.h.
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
#include "data/telequad.h"

namespace evenkeel {

struct TaskInfo {
  std::string name;                  ///< as in configs: "arc_c", "builtin:recall"
  std::string file;                  ///< its rows, below the family's folder; empty when they are elsewhere
  std::vector<std::string> answers;  ///< allowed answers, in the order a tie prefers; empty: any, or as each row says
  std::string source;                ///< one line for `evenkeel list tasks`
  Scoring scoring = Scoring::kChoice;
  std::string family{};  ///< one of families(); the table fills it in
  bool tests = true;     ///< false: it has rows to train on alone
  bool free_text() const { return scoring == Scoring::kF1 || scoring == Scoring::kExact; }
};

/// Which rows.
struct RowOptions {
  std::filesystem::path path{};  ///< folder of a family's files, or folder of such folders, each named as its family
  int64_t limit = 0;             ///< rows, 0: all (training on generated rows: their default number)
  uint64_t seed = 42;            ///< which rows a limit draws; the order of built-in test rows
  std::string label = "label";   ///< what Row::label says, one of label_keys()
  TelequadConfig telequad{};
  FilesConfig files{};
  PromptTemplate form = PromptTemplate::kPaper;  ///< what its rows are written by: chat keeps turns, \see FileRows
};

/// A family of tasks: one entry of the registry. Its functions get the folder of this family alone as `path`.
struct TaskFamily {
  std::string_view name;                                             ///< as in data.task
  std::vector<TaskInfo> (*tasks)(const RowOptions& from) = nullptr;  ///< in the order of reports
  /// Returns all training rows of the family. The registry applies RowOptions::limit afterwards, unless `generates` is
  /// set: then this function applies it.
  TaskRows (*training_rows)(const RowOptions& from) = nullptr;
  TaskRows (*test_rows)(const TaskInfo& task, const RowOptions& from) = nullptr;
  std::vector<std::string_view> label_keys = {"label"};  ///< what its rows can be grouped by
  bool in_folder = false;                                ///< its rows are in files below `path`, which has to be given
  bool generates = false;   ///< training: makes as many rows as the limit says; tests: a limit takes the first
  bool in_context = false;  ///< test prompts bring documents, and may be longer than any training row
  /// Files of a task's test rows, for the manifest; without it, TaskInfo::file.
  std::vector<std::string> (*test_files)(const TaskInfo& task, const RowOptions& from) = nullptr;
};

}  // namespace evenkeel
