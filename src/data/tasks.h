/// \file  The tasks: where their rows come from, which answers are allowed, how an answer is found in generated text.
/// A family of tasks is a row of a table (TaskFamily), one file each: tasks/commonsense.cpp (the eight LLM-Adapters
/// sets), tasks/telequad.cpp (telecom questions with their documents), tasks/builtin.cpp (ours), tasks/files.cpp (rows
/// of people's own). Programs bring families of their own by add_task_family() (docs/tutorial-new-task.md).
///
/// Example:  auto set = training_rows("telequad", {.path = "data/telequad", .label = "docid"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
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

/// A family of tasks: a row of the table. Its functions see `path` as the folder of this family alone.
struct TaskFamily {
  std::string_view name;                                             ///< as in data.task
  std::vector<TaskInfo> (*tasks)(const RowOptions& from) = nullptr;  ///< in the order of reports
  /// All of them: limits are drawn by the table, unless the family generates.
  TaskRows (*training_rows)(const RowOptions& from) = nullptr;
  TaskRows (*test_rows)(const TaskInfo& task, const RowOptions& from) = nullptr;
  std::vector<std::string_view> label_keys = {"label"};  ///< what its rows can be grouped by
  bool in_folder = false;                                ///< its rows are in files below `path`, which has to be given
  bool generates = false;   ///< training: makes as many rows as the limit says; tests: a limit takes the first
  bool in_context = false;  ///< test prompts bring documents, and may be longer than any training row
  /// Files of a task's test rows, for the manifest; without it, TaskInfo::file.
  std::vector<std::string> (*test_files)(const TaskInfo& task, const RowOptions& from) = nullptr;
};

std::span<const TaskFamily> task_families();
/// Adds a family of another program: the first thing its main() does, because references to rows do not survive it.
/// \throws kConfig when its name or a task's is taken, kInternal for a row that gives no tasks or rows.
void add_task_family(const TaskFamily& family);
/// \throws kConfig listing the known names.
const TaskFamily& find_task_family(std::string_view name);
std::vector<std::string_view> families();  ///< their names

/// All tasks, in the order of reports; of rows of one's own those that `from` holds.
std::vector<TaskInfo> tasks(const RowOptions& from = {});
/// \throws kConfig listing the known names.
TaskInfo find_task(std::string_view name, const RowOptions& from = {});
/// Expands a family to its members that have rows to test with; a single name to itself.
std::vector<std::string> expand_tasks(std::span<const std::string> names, const RowOptions& from = {});

/// What the rows of a family can be grouped by. "label" is everybody's: the task kind, or in telequad the spec.
std::vector<std::string_view> label_keys(std::string_view family);

/// Rows of a JSON array in the LLM-Adapters format. \throws kData (file, row, field) on anything malformed.
std::vector<Row> load_rows(const std::filesystem::path& file);

/// Whether a file is byte for byte the published one (table of sha256 in tasks/known_files.cpp).
enum class FileState { kExact, kRebuilt, kUnknown };
FileState file_state(const std::filesystem::path& file);

/// Test rows of a task: of a file as many as the limit, drawn without replacement; of a built-in task the first of all
/// its questions, each of which it asks once. \throws kData (file, place, field), kConfig
TaskRows test_rows(const TaskInfo& task, const RowOptions& from);
/// Which of `count` test rows a limit keeps, as indices in the order of test_rows(): of families that generate none.
std::vector<int64_t> kept_test_rows(int64_t count, int64_t limit, uint64_t seed);
/// The files that these rows are read from, of those that are there.
std::vector<std::string> test_files(const TaskInfo& task, const RowOptions& from);

/// Training rows of a family. commonsense: commonsense_15k.json first (sha256 checked), then the 11k stand-in with a
/// visible note.
TaskRows training_rows(std::string_view family, const RowOptions& from);
/// Of several, one after the other; a limit draws from all of them together, where a generating family makes its
/// default number.
TaskRows training_rows(std::span<const std::string> families, const RowOptions& from);

/// The first of the allowed answers to occur in `text`. Empty when there is none: an invalid answer.
/// Of the task's answers (LLM-Adapters' rule): anywhere, leftmost hit, no word boundaries; at the same place the
/// pattern's alternatives are tried in order.
std::string extract_answer(const TaskInfo& task, std::string_view text, bool lowercase);
/// Of a row's own options: the leftmost that stands as a word of its own (data/option_places.h); at the same place the
/// longest. `lowercase`: options are lower-cased too, to be found.
std::string extract_answer(const TaskInfo& task, const Row& row, std::string_view text, bool lowercase);

/// Share of the most frequent gold answer, and of uniform guessing: mean over rows of 1 / the row's options, or those
/// of its "Answer format", or the task's answers.
double majority_rate(std::span<const Row> rows);
double chance_rate(const TaskInfo& task, std::span<const Row> rows);

}  // namespace evenkeel
