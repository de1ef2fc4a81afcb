/// \file  Lists the tasks, loads their rows and finds answers in generated text. A task family is one entry of a
/// registry (data/task_family.h). Each built-in family has a file of its own: tasks/commonsense.cpp (the eight
/// LLM-Adapters sets), tasks/telequad.cpp (telecom questions with their documents), tasks/builtin.cpp,
/// tasks/builtin_large.cpp and tasks/builtin_changed.cpp (generated questions) and tasks/file_task.cpp (the user's own
/// files). A program registers further families with add_task_family() (docs/tutorial-new-task.md). All but
/// add_task_family() may run concurrently.
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

namespace evenkeel::data {

/// Returns all registered families, the built-in ones first.
std::span<const TaskFamily> task_families();
/// Registers a family. Call it first in main(): it invalidates references and spans returned by task_families() and
/// find_task_family(). Not thread-safe.
/// \throws kConfig when the family's name or the name of one of its tasks is taken; kInternal when `tasks`,
/// `training_rows` or `test_rows` is null.
void add_task_family(const TaskFamily& family);
/// Returns the family called `name`. \throws kConfig listing the known names.
const TaskFamily& find_task_family(std::string_view name);
/// Returns the names of all families, in the order of the registry.
std::vector<std::string_view> families();

/// Returns all tasks, in the order of reports. The tasks of the family "files" are those of `from.files`.
std::vector<TaskInfo> tasks(const RowOptions& from = {});
/// Returns the task called `name`. \throws kConfig listing the known names.
TaskInfo find_task(std::string_view name, const RowOptions& from = {});
/// Replaces each family name by its tasks that have test rows, and keeps task names. Removes duplicates.
/// \throws kConfig for an unknown name.
std::vector<std::string> expand_tasks(std::span<const std::string> names, const RowOptions& from = {});

/// Returns the values of RowOptions::label that a family accepts. All families accept "label": the kind of task, or the
/// specification in telequad. \throws kConfig for an unknown family.
std::vector<std::string_view> label_keys(std::string_view family);

/// Reads rows from a JSON array in the LLM-Adapters format (keys instruction, input, output, answer).
/// \throws kData (file, row, field) for a malformed file, an empty field or an empty array; kIo.
std::vector<Row> load_rows(const std::filesystem::path& file);

/// Compares a file with the published one.
/// - kExact: its SHA-256 is that of the published file (table in tasks/known_files.cpp).
/// - kRebuilt: its SHA-256 is that of a file that this project rebuilt because no published copy was available.
/// - kUnknown: its SHA-256 is in neither list.
enum class FileState { kExact, kRebuilt, kUnknown };
/// Hashes the file and looks it up. Cost: reads the whole file. \throws kIo.
FileState file_state(const std::filesystem::path& file);

/// Returns the test rows of a task. If `from.limit` is above 0, at most that many are kept. A family with `generates`
/// keeps the first ones; other families draw them at random without replacement, by `from.seed`. Of clients with rows
/// of their own, the limit applies to each client. A limit above the number of rows adds a note. \throws kData (file,
/// place, field), kConfig, kIo.
TaskRows test_rows(const TaskInfo& task, const RowOptions& from);
/// Returns the existing files that the test rows of `task` are read from.
std::vector<std::string> test_files(const TaskInfo& task, const RowOptions& from);

/// Returns the training rows of a family. If `from.limit` is above 0, at most that many are drawn at random by
/// `from.seed`; a family with `generates` makes exactly that many. The family commonsense reads commonsense_15k.json,
/// or the stand-in commonsense_11k_rebuilt.json if that file is missing; the stand-in, or an unexpected SHA-256, adds a
/// note.
/// \throws kConfig for an unknown family; kData and kIo from its files.
TaskRows training_rows(std::string_view family, const RowOptions& from);
/// Returns the training rows of several families, one family after the other. The limit draws from all rows together,
/// and a family with `generates` contributes its default number of rows. For one family it works as the function above.
/// \throws as the function above
TaskRows training_rows(std::span<const std::string> families, const RowOptions& from);

/// Returns the answers that a row allows. They are its options; without options, the answers in the rest of the line
/// after the last "Answer format:" of its instruction, separated by "/", without empty ones; without such answers, the
/// answers of the task.
std::vector<std::string> row_answers(const TaskInfo& task, const Row& row);

/// Returns the allowed answer of the task that occurs first in `text`, or an empty string if there is none. This is
/// LLM-Adapters' rule: it ignores word boundaries, and at the same position the earlier entry of TaskInfo::answers
/// wins. With `lowercase`, `text` is lower-cased before the search.
std::string extract_answer(const TaskInfo& task, std::string_view text, bool lowercase);
/// Returns the option of `row` that occurs first in `text` as a whole word (data/option_places.h), or an empty string
/// if there is none. At the same position the longest option wins. With `lowercase`, the text and the options are
/// lower-cased before the search; the result keeps the option's case. For a row without options it calls the function
/// above.
std::string extract_answer(const TaskInfo& task, const Row& row, std::string_view text, bool lowercase);

/// Returns the share of rows with the most frequent correct answer, 0 to 1; 0 without rows.
double majority_rate(std::span<const Row> rows);
/// Returns the accuracy of uniform guessing among row_answers(): the mean over rows of 1 / (number of answers). A row
/// without allowed answers counts as 0. Returns 0 without rows.
double chance_rate(const TaskInfo& task, std::span<const Row> rows);

}  // namespace evenkeel::data
