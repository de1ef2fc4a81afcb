/// \file  The tasks: where their rows come from, which answers are allowed, how an answer is found in generated text.
/// One file per family: tasks/commonsense.cpp (the eight LLM-Adapters sets), tasks/telequad.cpp (telecom questions with
/// their documents), tasks/builtin.cpp (ours). The table is tasks.cpp.
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
#include "data/telequad.h"

namespace evenkeel {

struct TaskInfo {
  std::string_view name;                  ///< as in configs: "arc_c", "builtin:recall"
  std::string_view family;                ///< one of families()
  std::string_view file;                  ///< its rows, below the data path; empty when generated
  std::vector<std::string_view> answers;  ///< allowed answer strings, in the order a tie prefers; empty: any text
  std::string_view source;                ///< one line for `evenkeel list tasks`
  bool free_text() const { return answers.empty(); }
};

/// All tasks, in the order of reports.
std::span<const TaskInfo> tasks();
/// \throws kConfig listing the known names.
const TaskInfo& find_task(std::string_view name);
/// Expands a family to its members; a single name to itself.
std::vector<std::string> expand_tasks(std::span<const std::string> names);

/// commonsense, telequad, builtin.
std::vector<std::string_view> families();
/// What the rows of a family can be grouped by. "label" is everybody's: the task kind, or in telequad the spec.
std::vector<std::string_view> label_keys(std::string_view family);

/// Rows of a JSON array in the LLM-Adapters format. \throws kData (file, row, field) on anything malformed.
std::vector<Row> load_rows(const std::filesystem::path& file);

/// Whether a file is byte for byte the published one (table of sha256 in tasks/known_files.cpp).
enum class FileState { kExact, kRebuilt, kUnknown };
FileState file_state(const std::filesystem::path& file);

/// Which rows of a family.
struct RowOptions {
  std::filesystem::path path{};  ///< folder that holds the family's files; unused by built-in tasks
  int64_t limit = 0;             ///< rows, 0: all (training on built-in tasks: their default number)
  uint64_t seed = 42;            ///< which rows a limit draws; the order of built-in test rows
  std::string label = "label";   ///< what Row::label says, one of label_keys()
  TelequadConfig telequad{};
};

/// Rows, and where they come from.
struct TaskRows {
  std::vector<Row> rows;
  std::vector<std::string> files{};  ///< what was read for training, for the manifest; empty when generated
  std::string note{};  ///< e.g. that a stand-in is used, or that there are fewer rows than the limit; shown as a
                       ///< warning; empty when there is nothing to say
};

/// Test rows of a task: of a file as many as the limit, drawn without replacement; of a built-in task the first of all
/// its questions, each of which it asks once. \throws kData (file, place, field), kConfig
TaskRows test_rows(const TaskInfo& task, const RowOptions& options);

/// Training rows of a family. commonsense: commonsense_15k.json first (sha256 checked), then the 11k stand-in with a
/// visible note.
TaskRows training_rows(std::string_view family, const RowOptions& options);

/// The first of the task's allowed answers to occur in `text`, anywhere, leftmost hit (LLM-Adapters' rule: no word
/// boundaries; at the same place the pattern's alternatives are tried in order). Empty when there is none: an invalid
/// answer.
std::string extract_answer(const TaskInfo& task, std::string_view text, bool lowercase);

/// Share of the most frequent gold answer, and of uniform guessing (mean over rows of 1 / options of the row's "Answer
/// format").
double majority_rate(std::span<const Row> rows);
double chance_rate(const TaskInfo& task, std::span<const Row> rows);

}  // namespace evenkeel
