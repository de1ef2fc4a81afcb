/// \file  Rows of people's own, from the files they have them in: JSON (one list of rows) or JSON lines.
///
///   alpaca             {"instruction": "...", "input": "...", "output": "..."}; input may be missing; with `system` or
///                      `history` (pairs of a question and its answer) a conversation
///   dolly              {"instruction": "...", "context": "...", "response": "..."}; context may be missing
///   messages           {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
///   sharegpt           {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
///   prompt_completion  {"prompt": "...", "completion": "..."}, both texts or both lists of messages
///   text               {"text": "..."}, all of it an answer to nothing, for the template plain
///
/// A list of rows may be the `data` of an object. Text is UTF-8, with or without a byte order mark; lines end in LF or
/// CRLF, and empty ones count for nothing but the numbers of the others. Other keys are left alone, but for `options`
/// (or `choices`) and `answer` where choices are asked for, the one that `label_field` names, and what a conversation
/// gives its template (data/conversations.h).
///
/// Example:  auto set = file_rows({.patterns = {"a.jsonl", "more/*.jsonl"}, .strict = false});
///           if (!set.note.empty()) log::warning("[data] ", set.note);
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/format/config_table.h"
#include "data/example.h"

namespace evenkeel {

enum class RowFormat {
  kAuto,  ///< of each file, what the keys of its first row say
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

/// Rows, and where they come from.
struct TaskRows {
  std::vector<Row> rows;
  std::vector<std::string> files{};  ///< what was read for training, for the manifest; empty when generated
  std::string note{};    ///< e.g. that a stand-in is used, or that rows were left out; shown as a warning; empty when
                         ///< there is nothing to say
  int64_t left_out = 0;  ///< rows that could not be read
  std::string read{};    ///< what was found, e.g. "1204 rows of a.jsonl (alpaca)"; empty when the task says it all
};

/// Puts `part` behind what `all` holds.
void append(TaskRows part, TaskRows& all);

/// Which files, and what is made of their rows.
struct FileRows {
  std::vector<std::string> patterns{};  ///< files, or globs (*, ?, [...]) that stand for what they match, by name
  RowFormat format = RowFormat::kAuto;
  bool strict = true;         ///< a row that cannot be read is refused; false: it is left out, counted and noted
  std::string label{};        ///< Row::label of all
  std::string label_field{};  ///< or the key of a row that says its label, text or a whole number
  bool choices = false;       ///< answers are one of the row's options; \see Row::options
  std::vector<std::string> options{};  ///< of rows that name none themselves
  bool conversations = false;  ///< messages stay turns; false: a question and its answer become instruction and output,
                               ///< what the system says in front of the instruction
  bool texts = false;          ///< the template adds nothing to a text, so that one may be all there is
  bool compared = false;       ///< answers are compared with text: a row whose answer has none is refused
};

/// The files that patterns stand for, each once whatever its names, in the order of the patterns.
/// \throws kData for a pattern that matches no file, kIo for a file that is not there.
std::vector<std::string> found_files(std::span<const std::string> patterns);

/// The rows of all files, in order; Row::references and Row::answer hold the answer of each.
/// \throws kData "a.jsonl:17: output is missing" (in a JSON list: "a.json: row 16: ...", counted from 0) for the first
/// row that cannot be read, or when no row of a file can; kConfig for a conversation of several turns where
/// `conversations` is false.
TaskRows file_rows(const FileRows& what);

}  // namespace evenkeel
