/// \file  Splitting patterns of tokenizer.json: regular expressions in Oniguruma's (Ruby) syntax, run by PCRE2 with its
/// JIT, and literal strings. Where the two engines read a pattern differently it is rewritten, or refused with a clear
/// error.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

/// A stretch of a text, by bytes.
struct TextSpan {
  size_t begin, end;
  bool matched;
};

class SplitPattern {
 public:
  /// \throws kData naming the pattern: malformed, or not read alike by both engines (set operations and nested sets,
  /// counted possessive quantifiers, \b \X \R \K \G and the option m).
  static SplitPattern regex(std::string_view ruby_syntax);
  static SplitPattern literal(std::string_view text);

  /// Matches and the gaps between them, in order; together they are the whole text. Thread-safe. REQUIRES valid UTF-8.
  std::vector<TextSpan> find(std::string_view text) const;

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

 private:
  struct Code;
  SplitPattern(std::string pattern, std::string shown);
  std::unique_ptr<Code> code_;
};

/// The pattern in PCRE2's syntax; seen from outside for its tests.
std::string translate_pattern(std::string_view ruby_syntax);

}  // namespace evenkeel
