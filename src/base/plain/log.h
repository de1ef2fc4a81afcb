/// \file  Log lines and the progress line, both on stderr: stdout belongs to results. The implementation is built
/// without LibTorch's include folders (they shadow fmt). Messages start with their area: log::info("[train] ...").
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/plain/error.h"

namespace evenkeel::log {

enum class Level { kInfo, kWarning, kError };

/// Lines below `level` are dropped. Default kInfo.
void set_level(Level level);

/// Writes one line now: what a terminal acts upon is spelled out, a very long one is shortened (base/plain/text.h).
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

/// A file that gets every line too, whatever the level, with date and time (UTC). One at a time writes. What cannot be
/// written is left out: a log is no reason to stop.
class File {
 public:
  /// Lines are held from now on, until open() says where they go.
  File();
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  /// Appends what was held, and from now on each line as it is written.
  void open(const std::filesystem::path& file);
  /// A line for the file alone.
  void note(Level level, std::string_view line);
};

/// One line that is rewritten in place on a terminal; elsewhere, and in a File, it is written as a plain log line at
/// most every `seconds_between_lines`. Log lines written meanwhile go above it.
class Progress {
 public:
  explicit Progress(std::string label, double seconds_between_lines = 10.0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(std::string_view text);

 private:
  void flush();

  std::string label_;
  double interval_;
  double last_ = -1e18, drawn_ = -1e18;
  std::string pending_;  // the newest text that no log line has yet
};

}  // namespace evenkeel::log
