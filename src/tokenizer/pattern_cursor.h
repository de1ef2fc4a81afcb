/// \file  Reads a pattern in Oniguruma's syntax character by character, with the parts of the syntax that are the same
/// inside and outside brackets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/code_set.h"

namespace evenkeel::tokenizer {

/// A position in a pattern. The pattern is borrowed.
class PatternCursor {
 public:
  /// Starts at the beginning of the pattern. REQUIRES valid UTF-8 that outlives the cursor.
  explicit PatternCursor(std::string_view pattern) : pattern_(pattern) {}

  /// Throws kData naming the pattern and `what`.
  [[noreturn]] void refuse(std::string_view what) const;

  bool done() const { return at_ >= pattern_.size(); }
  std::string_view rest() const { return pattern_.substr(at_); }
  char peek() const { return done() ? '\0' : pattern_[at_]; }
  bool starts(std::string_view text) const { return rest().starts_with(text); }
  /// Skips `bytes` bytes, which may lead beyond the end: done() is true then, and rest() must not be called. REQUIRES
  /// that no character is split.
  void skip(size_t bytes) { at_ += bytes; }
  /// Returns to the position `bytes` bytes before. REQUIRES that as many were read.
  void go_back(size_t bytes) { at_ -= bytes; }
  /// Skips `bytes` bytes and returns them. REQUIRES that as many are left, and that no character is split.
  std::string_view take_bytes(size_t bytes) {
    at_ += bytes;
    return pattern_.substr(at_ - bytes, bytes);
  }
  /// Skips `text` and returns true if the rest begins with it; otherwise returns false.
  bool take(std::string_view text) {
    if (!starts(text)) return false;
    at_ += text.size();
    return true;
  }

  /// Reads one character. \throws kData at the end of the pattern.
  uint32_t code_point();
  /// Reads a character after a backslash: \n, \x41, \x{1F600}, \u0041, or one that stands for itself there, as in "\."
  /// and "\q". \throws kData for other escapes, such as \b and \1, and at the end of the pattern.
  uint32_t escaped_code_point();
  /// Reads a class after a backslash: \d (digits), \h (hexadecimal digits), \s (white space), \w (word characters),
  /// \p{..} (a Unicode property) or their negations. Returns nothing, and does not advance, if something else follows.
  /// \throws kData for an unknown property
  std::optional<CodeSet> escaped_class();

 private:
  uint32_t hexadecimal(size_t least, size_t most);
  CodeSet property(bool negated);

  std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace evenkeel::tokenizer
