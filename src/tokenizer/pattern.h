/// \file  Matches the patterns of a tokenizer.json: literal strings, and regular expressions in Oniguruma's syntax. The
/// expressions are translated (pattern_translation.h) and run by PCRE2 with its JIT.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::tokenizer {

/// The bytes [begin, end) of a text.
struct TextSpan {
  size_t begin, end;
  bool matched;  ///< true: a match; false: text between matches
};

/// A compiled pattern. Immutable and thread-safe.
class SplitPattern {
 public:
  /// Compiles a regular expression. \throws kData naming a pattern that is malformed or has no exact equivalent in
  /// PCRE2.
  static SplitPattern regex(std::string_view pattern);
  /// Returns a pattern that matches `text` only.
  static SplitPattern literal(std::string_view text);

  /// Returns the matches and the text between them, in order; together they are the whole text. REQUIRES valid UTF-8.
  std::vector<TextSpan> find(std::string_view text) const;

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

 private:
  struct Code;
  SplitPattern(std::string pattern, std::string shown);
  std::unique_ptr<Code> code_;
};

}  // namespace evenkeel::tokenizer
