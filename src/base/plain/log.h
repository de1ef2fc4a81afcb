/// \file  Writes log lines and a progress line to stderr; stdout is reserved for results. All functions may be called
/// from any thread. Messages start with their area in brackets: log::info("[train] ...").
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/plain/error.h"

namespace evenkeel::log {

/// Severity of a line, lowest first.
enum class Level { kInfo, kWarning, kError };

/// Drops all later lines below `level` from stderr. The default is kInfo. A File still receives them.
void set_level(Level level);

/// Writes and flushes one line. Control characters are escaped. A line above 2,000 bytes is shortened
/// (base/plain/text.h).
void write(Level level, std::string_view line);

template <typename... Parts>
void info(const Parts&... parts) {
  write(Level::kInfo, concat(parts...));
}
template <typename... Parts>
void warning(const Parts&... parts) {
  write(Level::kWarning, concat(parts...));
}
template <typename... Parts>
void error(const Parts&... parts) {
  write(Level::kError, concat(parts...));
}

/// Copies every log line of any level to a file, each with the UTC date and time. At most one File may exist at a time.
/// A file that cannot be opened or written is ignored, because a run must not stop for its log: its lines are lost
/// until it can be written again.
class File {
 public:
  /// Starts to collect lines in memory until open() is called.
  File();
  /// Closes the file.
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  /// Appends the collected lines to `file`, and from now on each new line.
  void open(const std::filesystem::path& file);
  /// Writes a line to the file only, not to stderr.
  void note(Level level, std::string_view line);
};

/// Shows one line that is rewritten in place on a terminal. Log lines that are written meanwhile appear above it. When
/// stderr is not a terminal, the line is written as a plain log line at most every `seconds_between_lines`. A File
/// always receives such log lines. At most one Progress should exist at a time, because all share the line of the
/// terminal.
class Progress {
 public:
  /// \param label  text in front of every update
  /// \param seconds_between_lines  minimum time between two plain log lines
  explicit Progress(std::string label, double seconds_between_lines = 10.0);
  /// Writes the newest text as a log line if that was not done yet, and ends the line on the terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Replaces the text of the line. The terminal is redrawn at most 20 times a second.
  void update(std::string_view text);

 private:
  /// Writes pending_ as a log line.
  void flush();

  std::string label_;
  double interval_;
  double last_ = -1e18, drawn_ = -1e18;
  std::string pending_;  // newest text that is not yet in a log line
};

}  // namespace evenkeel::log
