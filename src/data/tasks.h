/// \file  The tasks: where their rows come from, which answers are allowed, how an answer is found in generated text.
/// A family of tasks is an entry of a registry (data/task_family.h), one file each: tasks/commonsense.cpp (the eight
/// LLM-Adapters sets), tasks/telequad.cpp (telecom questions with their documents), tasks/builtin.cpp (ours),
/// tasks/files.cpp (rows of people's own). Programs bring families of their own by add_task_family()
/// (docs/tutorial-new-task.md).
///
/// Example:  auto set = training_rows("telequad", {.path = "data/telequad", .label = "docid"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/task_family.h"

namespace evenkeel {

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
