/// \file  Splitting patterns of tokenizer.json: regular expressions in Oniguruma's syntax, translated
/// (pattern_translation.h) and run by PCRE2 with its JIT, and literal strings.
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
  /// \throws kData naming the pattern: malformed, or without an exact counterpart (pattern_translation.h).
  static SplitPattern regex(std::string_view pattern);
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

}  // namespace evenkeel
