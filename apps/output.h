/// \file  Implements standard output with detection of lost output. While an Output exists, std::cout writes through
/// it. Nothing else may write to stdout.
#pragma once

#include <array>
#include <ios>
#include <streambuf>
#include <string_view>

namespace evenkeel::apps {

/// Thrown by std::cout when stdout cannot be written, so that the command stops. Output::finish() decides the exit
/// code. Later writes throw the stream's own std::ios_base::failure.
struct OutputLost : std::ios_base::failure {
  OutputLost() : failure("standard output cannot be written") {}
};

/// A stream buffer that std::cout uses from the constructor to the destructor.
class Output final : public std::streambuf {
 public:
  /// Opens descriptors 0 to 2 if they are closed, so that no file gets their numbers. A closed stdout is replaced by a
  /// descriptor that cannot be written, a closed stderr by one that discards all data. SIGPIPE and SIGXFSZ are ignored
  /// from here on, so a broken pipe or a full file is a failed write and does not end the process.
  Output();
  ~Output() override;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Flushes the buffer.
  /// \return `code`, or 1 with a line on stderr if `code` is 0 and output was lost. A closed pipe, as after `head`, is
  /// not an error.
  int finish(int code);
  bool failed() const;       ///< true after a write that failed otherwise than by a closed pipe
  bool reader_gone() const;  ///< asks the pipe or terminal, also where nothing was written

 protected:
  int_type overflow(int_type next) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  void write_out();
  void write(std::string_view text);

  std::array<char, 1 << 15> buffer_{};  ///< unused on a terminal, where text is written at once
  std::streambuf* before_;
  int error_ = 0;  ///< errno of the first failed write; 0: none
};

/// Returns true if output was lost, for which the program exits with 1. A closed pipe is no loss.
bool output_failed();

/// Returns true if nobody reads stdout any more: it is a pipe whose reader is gone, as `head` is after some lines, or a
/// terminal that was hung up, for which output_failed() becomes true as well at the next write.
bool reader_gone();

/// Formats like std::printf and writes to std::cout.
[[gnu::format(printf, 1, 2)]] void print(const char* format, ...);

}  // namespace evenkeel::apps
