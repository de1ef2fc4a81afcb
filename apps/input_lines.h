/// \file  Input files of commands that take one JSON value a line.
#pragma once

#include <functional>
#include <string>

#include "base/plain/error.h"
#include "base/plain/json.h"

namespace evenkeel {

/// Calls `use` for each line that is not blank, of "-" as soon as standard input has it; errors begin with
/// "<file> line <number>". \throws kIo when the file cannot be read or is longer than 1 GiB, kData when it holds no
/// lines.
/// \param on_fault  told of each line that is not JSON or that `use` refuses (kData), before the next is read; without
/// it such a line is an error
void for_each_json_line(const std::string& file, const std::function<void(const JsonView&)>& use,
                        const std::function<void(const Error&)>& on_fault = {});

/// Rows of a command that could not be used while the others were.
class RowFaults {
 public:
  /// What is wrong with a row, without the kind of the error; it is counted.
  std::string note(const Error& error);
  /// A row that is as it should be.
  void good() { ++rows_; }
  /// \throws kData when there is any: how many of how many, and the first. \param undone  "scored", "compared"
  void finish(std::string_view undone) const;

 private:
  size_t rows_ = 0, bad_ = 0;
  std::string first_;
};

}  // namespace evenkeel
