/// \file  The tasks: where their rows come from, which answers are allowed, how an answer is found in generated text.
/// One file per family: tasks/commonsense.cpp (the eight LLM-Adapters sets), tasks/builtin.cpp (ours). The table is tasks.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/example.h"

namespace evenkeel {

struct TaskInfo {
  std::string_view name;                  ///< as in configs: "arc_c", "builtin:recall"
  std::string_view family;                ///< "commonsense" or "builtin"
  std::string_view folder;                ///< folder of test.json below the data path; empty when generated
  std::vector<std::string_view> answers;  ///< allowed answer strings, in the order a tie prefers
  std::string_view source;                ///< one line for `evenkeel list tasks`
};

/// All tasks, in the order of reports.
std::span<const TaskInfo> tasks();
/// \throws kConfig listing the known names.
const TaskInfo& find_task(std::string_view name);
/// Expands "commonsense" and "builtin" to their members; a single name to itself.
std::vector<std::string> expand_tasks(std::span<const std::string> names);

/// Rows of a JSON array in the LLM-Adapters format. \throws kData (file, row, field) on anything malformed.
std::vector<Row> load_rows(const std::filesystem::path& file);

/// Whether a file is byte for byte the published one (table of sha256 in tasks/commonsense.cpp).
enum class FileState { kExact, kRebuilt, kUnknown };
FileState file_state(const std::filesystem::path& file);

/// Test rows of a task. `data_path` is the folder that holds the family's folders (ignored by built-in tasks). `limit` 0: all.
std::vector<Row> test_rows(const TaskInfo& task, const std::filesystem::path& data_path, int64_t limit, uint64_t seed);

struct TrainingSet {
  std::vector<Row> rows;
  std::vector<std::string> files;  ///< what was read, for the manifest; empty when generated
  std::string note;                ///< e.g. that a stand-in is used; shown as a warning; empty when exact
};
/// Training rows of a family: commonsense_15k.json first (sha256 checked), then the 11k stand-in with a visible note.
/// `limit` 0: all (built-in tasks: their default size).
TrainingSet training_rows(std::string_view family, const std::filesystem::path& data_path, int64_t limit,
                          uint64_t seed);

/// The first of the task's allowed answers to occur in `text`, anywhere, leftmost hit (LLM-Adapters' rule: no word boundaries;
/// at the same place the pattern's alternatives are tried in order). Empty when there is none: an invalid answer.
std::string extract_answer(const TaskInfo& task, std::string_view text, bool lowercase);

/// Share of the most frequent gold answer, and of uniform guessing (mean over rows of 1 / options of the row's "Answer format").
double majority_rate(std::span<const Row> rows);
double chance_rate(const TaskInfo& task, std::span<const Row> rows);

}  // namespace evenkeel
