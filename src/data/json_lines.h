/// \file  Splits the text of a file of JSON lines into its values, and reports why a file is not JSON lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace evenkeel::data {

/// A value of a file of JSON lines.
struct JsonLine {
  std::string_view text;  ///< borrowed from the text of the file
  int64_t first = 0;      ///< number of its line, from 1
  int64_t last = 0;       ///< number of its last line; greater than `first` if the value was written over several lines
};

/// Iterates over the non-blank lines of a text. A byte order mark at the beginning is skipped. A value that is wrongly
/// written over several lines is one JsonLine, so that it gives one error. Cost: linear in the text.
/// Example:  JsonLines lines(text);  while (const auto line = lines.next()) use(*line);
class JsonLines {
 public:
  /// \param text  must outlive this object
  explicit JsonLines(std::string_view text);
  /// Returns the next value, or nothing at the end of the text.
  std::optional<JsonLine> next();

 private:
  std::optional<JsonLine> over_lines(std::string_view from);

  std::string_view rest_;
  int64_t number_ = 0;
  bool looks_ahead_ = true;  // false after a value that did not end
};

/// Returns true if a JSON value begins in the text but does not end there.
bool is_open_json(std::string_view text);

/// Checks that the value ends on its line.
/// \param place  file and line, with which the message begins
/// \throws kData when the value goes on over several lines, or the line ends within it
void check_line_ends(const JsonLine& line, std::string_view place);

}  // namespace evenkeel::data
