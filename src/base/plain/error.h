/// \file  Defines Error, the exception type for all errors of the project, and EK_CHECK, which throws it. Does not
/// depend on LibTorch.
/// Example:  EK_CHECK(rank > 0, kConfig, "train.rank is ", rank, ", allowed: 1 or more");
#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <string_view>

namespace evenkeel {

/// The category of an error. All but kInternal give exit code 1.
enum class ErrorKind {
  kConfig,      ///< a configuration file, a flag, or a combination of settings
  kData,        ///< a data set, tokenizer or prompt file
  kCheckpoint,  ///< a model or adapter folder
  kShape,       ///< tensors with shapes that do not match
  kNumeric,     ///< a loss, gradient or aggregate that is not finite
  kIo,          ///< a failed system call: a file is missing, not writable or already there; disk or memory is full
  kInternal,    ///< a defect of the program (exit code 2)
};
using enum ErrorKind;

/// Returns the word for `kind` that messages show in brackets, e.g. "config".
std::string_view to_string(ErrorKind kind);

/// Reports an error with its kind and a one-line message. The object is copyable and immutable.
class Error : public std::exception {
 public:
  /// Maximum length of what() in bytes. With the program's name in front, a line has at most 500 bytes.
  static constexpr size_t kLongestMessage = 490;

  /// Builds an error from its kind and a message of any length and content.
  Error(ErrorKind kind, std::string message);
  /// Returns the kind that the constructor received.
  ErrorKind kind() const noexcept { return kind_; }
  /// Returns the message with its contexts and advice, whole and not escaped.
  const std::string& message() const noexcept { return message_; }
  /// Returns one line of at most kLongestMessage bytes: `[kind] context: message`. Control characters are escaped. A
  /// longer text is shortened in the middle (see shown() in base/plain/text.h).
  const char* what() const noexcept override { return text_.c_str(); }
  /// Returns a copy with "`context`: " in front of the message, e.g. "round 3, client 5, method ub-smoe".
  Error with_context(std::string_view context) const;
  /// Returns a copy with "; `advice`" after the message.
  Error with_advice(std::string_view advice) const;
  /// Returns the exit code of the program: 2 for kInternal, otherwise 1.
  int exit_code() const noexcept { return kind_ == kInternal ? 2 : 1; }

 private:
  ErrorKind kind_;
  std::string message_;
  std::string text_;
};

/// Concatenates all parts with operator<<.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Joins the items with `separator` between them, e.g. "a, b, c".
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

/// Throws Error{kind} with the concatenated parts as its message.
template <typename... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, concat(parts...));
}

}  // namespace evenkeel

/// Throws Error{kind} unless `condition` is true. The message should name the key or quantity, its value and the
/// allowed values. The parts are formatted only on failure.
#define EK_CHECK(condition, kind, ...)                            \
  do {                                                            \
    if (!(condition)) [[unlikely]]                                \
      ::evenkeel::fail(::evenkeel::ErrorKind::kind, __VA_ARGS__); \
  } while (false)
