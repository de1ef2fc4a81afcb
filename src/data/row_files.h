/// \file  Reads the user's own rows from files. A file is JSON (one list of rows) or JSON lines (one row per line).
///
///   alpaca             {"instruction": "...", "input": "...", "output": "..."}
///   dolly              {"instruction": "...", "context": "...", "response": "..."}
///   messages           {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
///   sharegpt           {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
///   prompt_completion  {"prompt": "...", "completion": "..."}, both strings or both lists of messages
///   text               {"text": "..."}, an answer without a question, for the template plain
///
/// The list of rows may also be the value of `data` in an object. Text is UTF-8, with or without a byte order mark.
/// Lines end in LF or CRLF; empty lines are skipped but counted in line numbers. Further keys are read in every format
/// in which they have a meaning, and a row that would lose one is refused: data/row_keys.h has the table. Keys that
/// no format knows are ignored.
///
/// Example:  auto set = file_rows({.patterns = {"a.jsonl", "more/*.jsonl"}, .strict = false});
///           if (!set.note.empty()) log::warning("[data] ", set.note);
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/format/config_table.h"
#include "data/example.h"

namespace evenkeel::data {

/// Selects the format of the rows of a file.
enum class RowFormat {
  /// The keys of the first row of each file determine its format.
  kAuto,
  kAlpaca,
  kDolly,
  kMessages,
  kShareGpt,
  kPromptCompletion,
  kText,
};
constexpr auto names(RowFormat) {
  return std::array{config::EnumName<RowFormat>{"auto", RowFormat::kAuto},
                    config::EnumName<RowFormat>{"alpaca", RowFormat::kAlpaca},
                    config::EnumName<RowFormat>{"dolly", RowFormat::kDolly},
                    config::EnumName<RowFormat>{"messages", RowFormat::kMessages},
                    config::EnumName<RowFormat>{"sharegpt", RowFormat::kShareGpt},
                    config::EnumName<RowFormat>{"prompt_completion", RowFormat::kPromptCompletion},
                    config::EnumName<RowFormat>{"text", RowFormat::kText}};
}

/// Rows, with a report on where they were read from.
struct TaskRows {
  std::vector<Row> rows;
  std::vector<std::string> files{};  ///< training files that were read, for the manifest; empty if the rows were
                                     ///< generated
  /// Warning for the user, e.g. that a stand-in file was used or rows were left out; empty if there is none.
  std::string note{};
  int64_t left_out = 0;  ///< rows that could not be read
  /// Training rows only: the rows of the same files that are held out for testing.
  std::vector<RowPlace> held_out{};
  /// Summary of what was read, e.g. "1204 rows of a.jsonl (alpaca)"; may be empty.
  std::string read{};
};

/// Appends the rows, files, counts and texts of `part` to `all`.
void append(TaskRows part, TaskRows& all);

/// Options of file_rows().
struct FileRows {
  /// Paths or globs (*, ?, [...]). The matches of a glob are sorted by name.
  std::vector<std::string> patterns{};
  RowFormat format = RowFormat::kAuto;
  /// True: a row that cannot be read is an error. False: it is left out, counted and mentioned in TaskRows::note. Also
  /// Row::is_required of all rows.
  bool strict = true;
  std::vector<std::string> ignore{};  ///< keys of rows that are not read, as if they were not there
  std::string label{};                ///< Row::label of all rows whose label_field is not read
  /// Key of a row that holds its label, a string or an integer. Empty: `label` is used.
  std::string label_field{};
  /// False: the value of label_field is neither needed nor read. True: a row without it cannot be read.
  bool labelled = true;
  /// True: each answer must be one of the row's options (Row::options). The options are the row's `options` or
  /// `choices`, its answer is `answer`, else the whole text that is learned.
  bool choices = false;
  std::vector<std::string> options{};  ///< options of rows without options of their own
  /// True: messages become Row::turns. False: a question and its answer become instruction and output, with the system
  /// message before the instruction.
  bool conversations = false;
  /// True: rows of the format `text` are allowed, because the prompt template adds nothing to a text.
  bool texts = false;
  /// True: answers are compared as text, so a row with an empty answer is an error. A text under `answer`, or several,
  /// is accepted too (Row::references).
  bool compared = false;
  /// Files whose rows are returned without being counted: TaskRows::files, note, left_out and read leave them out.
  std::set<std::string> uncounted{};
};

/// Returns the files that the patterns match, in the order of the patterns. Each file is returned once, even if several
/// paths or links name it.
/// \throws kData for a glob that matches no file, a folder, a pipe or a device; kIo for a path that does not exist or
/// cannot be searched.
std::vector<std::string> found_files(std::span<const std::string> patterns);

/// Replaces each path of a folder by its files of rows: those in *.jsonl, then those in *.json, by name. Other paths
/// stay as they are.
/// \throws kData for a folder without such a file; kIo for one that cannot be listed
std::vector<std::string> with_files_of_folders(std::span<const std::string> paths);

/// Reads the rows of all files, in order. Row::answer and Row::references hold the answer of each row. A file that is a
/// copy of another one is read too, and TaskRows::note mentions it.
/// \throws kData for the first row that cannot be read, or for a file without a readable row: "a.jsonl:17: output is
/// missing" (in a JSON list "a.json: row 16: ...", counted from 0). \throws kConfig for a conversation with several
/// answers if `conversations` is false; kIo.
TaskRows file_rows(const FileRows& what);

}  // namespace evenkeel::data
