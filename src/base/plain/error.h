/// \file  The one exception of the project, and the check that raises it. Knows nothing of torch.
/// Example:  EK_CHECK(rank > 0, kConfig, "train.rank is ", rank, ", allowed: 1 or more");
#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <string_view>

namespace evenkeel {

/// Who has to act: the first four are the user's input (exit code 1), the last three are told apart for the reader.
enum class ErrorKind {
  kConfig,      ///< a configuration file, a flag, or a combination of settings
  kData,        ///< a data set, tokenizer or prompt file
  kCheckpoint,  ///< a model or adapter folder
  kShape,       ///< tensors that do not fit together
  kNumeric,     ///< a loss, gradient or aggregate that is not finite
  kIo,          ///< the system refused: a file exists, is missing, not writable, the disk or memory is full
  kInternal,    ///< our fault (exit code 2)
};
using enum ErrorKind;

/// The word that stands in brackets before a message, e.g. "config".
std::string_view to_string(ErrorKind kind);

class Error : public std::exception {
 public:
  /// With the program's name in front a line is of 500 bytes at most.
  static constexpr size_t kLongestMessage = 490;

  Error(ErrorKind kind, std::string message);
  ErrorKind kind() const noexcept { return kind_; }
  /// One line of at most kLongestMessage bytes: `[kind] context: message`, whatever the parts were: what a terminal
  /// acts upon is spelled out, and of a longer text the beginning and the end stay.
  const char* what() const noexcept override { return text_.c_str(); }
  /// The same error with `context` in front of its message, e.g. "round 3, client 5, method ub-smoe".
  Error with_context(std::string_view context) const;
  /// The same error with `advice` behind its message.
  Error with_advice(std::string_view advice) const;
  /// Exit code of the program: 1 when the input is wrong, 2 when the fault is ours.
  int exit_code() const noexcept { return kind_ == kInternal ? 2 : 1; }

 private:
  ErrorKind kind_;
  std::string message_;
  std::string text_;
};

/// Concatenates anything that streams. Built only when a check fails.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// "a, b, c": for messages that list what was allowed.
template <typename Range>
std::string join(const Range& items, std::string_view separator = ", ") {
  std::ostringstream out;
  std::string_view gap;
  for (const auto& item : items) {
    out << gap << item;
    gap = separator;
  }
  return out.str();
}

template <typename... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, concat(parts...));
}

}  // namespace evenkeel

/// Raises Error{kind} unless `condition`. Say who, what arrived, what was allowed. The parts are formatted on failure
/// only.
#define EK_CHECK(condition, kind, ...)                            \
  do {                                                            \
    if (!(condition)) [[unlikely]]                                \
      ::evenkeel::fail(::evenkeel::ErrorKind::kind, __VA_ARGS__); \
  } while (false)
