/// \file  Defines the flags of `evenkeel evaluate`, how they are checked, and what they say.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "base/plain/files.h"
#include "data/tasks.h"
#include "fed/config/experiment_config.h"
#include "scoring/task_evaluation.h"

namespace evenkeel::apps {

struct EvaluateFlags {
  MethodFlag method;
  ModelOptions model;
  std::string run, base, data, predictions, journal, progress = "text";
  fed::BertScoreSection bert_score;
  std::vector<std::string> tasks;
  std::vector<double> budgets;
  std::optional<std::string> decode, form, format, score, chat_template, date;
  std::vector<std::string> options, ignore;
  std::optional<int64_t> limit, seed, batch_size, max_new_tokens;
  bool json = false, in_the_run_only = false, strict = false, best = false, questions = false;

  void add_to(CLI::App& command);
  /// Checks every flag that can be checked without a run or a model. \throws kConfig naming the flag
  void check() const;

  /// Returns true if rows of the user's own are scored: --tasks files.
  bool asks_for_files() const;
  std::optional<scoring::Decode> decode_rule() const;       ///< --decode
  std::optional<data::PromptTemplate> prompt_form() const;  ///< --template
  /// Returns a set of user files whose test rows are those of --data.
  data::FilesConfig files() const;
};

/// Checks that no output is one of the files that the evaluation reads. \throws kConfig
void check_outputs_apart(const EvaluateFlags& flags, std::vector<fs::path> inputs);

/// Returns the tasks of names and families. \throws kConfig for an unknown one
std::vector<data::TaskInfo> tasks_of(const std::vector<std::string>& names, const data::RowOptions& from);
/// Checks that one of the tasks reads --data: as the file of --tasks files, or as the folder of its rows.
void check_data_is_read(const EvaluateFlags& flags, const std::vector<data::TaskInfo>& tasks);
/// Sets `path` to the folder of a task's rows: --data, or $EVENKEEL_DATA if no folder is given.
void lead_to_rows(const EvaluateFlags& flags, const data::TaskInfo& task, fs::path& path);
/// Warns of each of a task's files that is not the published one.
void warn_of_rebuilt(const data::TaskInfo& task, const data::RowOptions& from);

}  // namespace evenkeel::apps
