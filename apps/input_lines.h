/// \file  Reads input files with one JSON value per line.
#pragma once

#include <functional>
#include <string>

#include "base/plain/error.h"
#include "base/plain/json.h"

namespace evenkeel::apps {

/// Calls `use` for each line that is not blank. "-" is standard input, whose lines are used as they arrive. Errors
/// begin with "<file> line <number>" or "standard input line <number>".
/// \param on_fault  receives the kData error of a faulty line: one that is not JSON, or for which `use` threw kData.
///                  It is called before the next line is read. Empty: the first such error is thrown. Other errors of
///                  `use` are always thrown.
/// \throws kIo when the file cannot be read or is longer than limits::kInput; kData when it has no lines. Standard
/// input may be empty and of any length, but a line of it above limits::kInput throws kData.
void for_each_json_line(const std::string& file, const std::function<void(const JsonView&)>& use,
                        const std::function<void(const Error&)>& on_fault = {});

/// Counts the valid and the faulty rows of a command. A faulty row does not stop the command.
class RowFaults {
 public:
  /// Counts a faulty row. \return the error message without its kind
  std::string note(const Error& error);
  /// Counts a valid row.
  void good() { ++rows_; }
  /// Throws if there were faulty rows. Call it at the end of the command.
  /// \param done  what the command does with a valid row, as in "scored" or "compared"; it is not done with faulty ones
  /// \throws kData when there are faulty rows: "N of M rows could not be scored; the first: ..."
  void finish(std::string_view done) const;

 private:
  size_t rows_ = 0, bad_ = 0;
  std::string first_;
};

}  // namespace evenkeel::apps
