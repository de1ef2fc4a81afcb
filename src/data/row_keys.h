/// \file  The keys of the rows of all formats, and what each key does in each format. A key that one format reads is
/// read by every format in which it has a meaning. In a format in which it has none, a row with a value under this key
/// is refused, because the value would be lost in silence. A new format is a new column of the table, so it says
/// what it does with every key.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel::data {

/// The columns of the table: the formats of RowFormat, where prompt_completion with two lists of messages is a column
/// of its own.
enum class RowLayout { kAlpaca, kDolly, kPromptCompletion, kPromptCompletionTurns, kMessages, kShareGpt, kText };
constexpr size_t kRowLayouts = 7;

/// What a key does in a layout.
enum class KeyUse {
  kNotSaid,   ///< no entry of the table has this value
  kQuestion,  ///< text of the question
  kContext,   ///< text that the question is about; may be missing
  kAnswer,    ///< text that is learned
  kSystem,    ///< text that a conversation begins with; may be missing
  kHistory,   ///< earlier pairs of a question and its answer; may be missing
  kPrompt,    ///< list of messages, none of which is learned
  kTurns,     ///< list of messages; the last is an answer
  kText,      ///< text without a question
  kTemplate,  ///< variable of a chat template; may be missing
  kScore,     ///< read where answers are scored: allowed answers, and which of them is right
  kGroup,     ///< text or number that partitions may group by; a flag is refused
  kLost,      ///< not read; a row with a value that is not also elsewhere in the row is refused
};

/// Returns the keys of all layouts, and common names of the same things in the formats of other programs.
std::vector<std::string_view> known_row_keys();
/// Returns what a known key does in a layout. \throws kInternal for an unknown key
KeyUse use_of(std::string_view key, RowLayout layout);
/// Returns the keys with a use in a layout, in the order of the table.
std::vector<std::string_view> keys_with(KeyUse use, RowLayout layout);

/// Returns true if the value says nothing: null, or an empty text, list or object.
bool says_nothing(const Json& value);

/// Refuses a row that loses something:
/// - a value under a key that the layout does not read. It is allowed if it repeats one of `parts`, or under `text` if
///   it holds all of them, as in files that hold the whole prompt next to its parts;
/// - a value under a key that differs from a known key only in case, spaces and hyphens ("Input"). Keys that partitions
/// may group by are exempt.
/// \param parts  texts that were read from the row: question, context, answer, contents of messages
/// \param label_field  key that is read as Row::label; may be empty
/// \throws kData naming file, line and key
void check_nothing_lost(const JsonView& row, RowLayout layout, std::span<const std::string_view> parts,
                        std::string_view label_field);

/// Refuses a line {"prompt": ...} that holds more of a question than its prompt: a context, a system's text, a history
/// or variables of a template. \throws kData naming line and key
void check_prompt_alone(const JsonView& line);

/// Returns the value that is not empty under the keys of a use; nullopt if there is none. \throws kData if two keys
/// have different values
std::optional<JsonView> only_value(const JsonView& row, KeyUse use, RowLayout layout);

}  // namespace evenkeel::data
