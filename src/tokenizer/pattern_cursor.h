/// \file  A place within a pattern in Oniguruma's syntax, and what is read alike within brackets and outside of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/code_set.h"

namespace evenkeel {

class PatternCursor {
 public:
  /// REQUIRES valid UTF-8, which outlives the cursor.
  explicit PatternCursor(std::string_view pattern) : pattern_(pattern) {}

  /// \throws kData naming the pattern and `what`.
  [[noreturn]] void refuse(std::string_view what) const;

  bool done() const { return at_ >= pattern_.size(); }
  std::string_view rest() const { return pattern_.substr(at_); }
  char peek() const { return done() ? '\0' : pattern_[at_]; }
  bool starts(std::string_view text) const { return rest().starts_with(text); }
  void skip(size_t bytes) { at_ += bytes; }
  bool take(std::string_view text) {
    if (!starts(text)) return false;
    at_ += text.size();
    return true;
  }

  /// The next character. \throws kData at the end
  uint32_t code_point();
  /// Behind a backslash: \n, \x41, \x{1F600}, \u0041, or any character that has no other meaning there.
  uint32_t escaped_code_point();
  /// Behind a backslash: \d \h \s \w as within brackets and \p{..}, with their negations. Nothing, and the cursor where
  /// it was, when there is something else.
  std::optional<unicode::CodeSet> escaped_class();

 private:
  uint32_t hexadecimal(size_t least, size_t most);
  unicode::CodeSet property(bool negated);

  std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace evenkeel
