/// \file  Standard output of the program: what is printed arrives, or the program says that it did not. While an Output
/// lives, std::cout writes through it, and nothing else writes to stdout.
#pragma once

#include <array>
#include <ios>
#include <streambuf>
#include <string_view>

namespace evenkeel {

/// Thrown out of std::cout when stdout takes no more: a command need not go on. Output::finish() says what it means.
/// What is printed after it throws the stream's own std::ios_base::failure.
struct OutputLost : std::ios_base::failure {
  OutputLost() : failure("standard output cannot be written") {}
};

class Output final : public std::streambuf {
 public:
  /// Makes sure that descriptors 0 to 2 are taken, so that no file of ours can become stdout: a closed stdout is held
  /// by something that cannot be written, a closed stderr by something that takes everything. From here on a broken
  /// pipe or a file beyond its limit is a failed write, not the end of the process: a training outlives its log.
  Output();
  ~Output() override;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Writes what is left. \return `code`; but where that is 0 and something printed could not be written, 1 and one
  /// line on stderr. A reader that has gone away (`| head`) has seen enough: 0.
  int finish(int code);

 protected:
  int_type overflow(int_type next) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  void write_out();
  void write(std::string_view text);

  std::array<char, 1 << 15> buffer_{};  ///< unused on a terminal, where a line is seen when it is printed
  std::streambuf* before_;
  int error_ = 0;  ///< errno of the first write that failed
};

/// std::printf through std::cout.
[[gnu::format(printf, 1, 2)]] void print(const char* format, ...);

}  // namespace evenkeel
