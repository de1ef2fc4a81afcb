/// \file  Implements "Replace" of the normalizers and decoders in a tokenizer.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/plain/json.h"
#include "tokenizer/pattern.h"

namespace evenkeel::tokenizer {

/// Reads the pattern {"Regex": ..} or {"String": ..} under the key "pattern". \throws kData with the place.
SplitPattern pattern_of(const JsonView& json);

/// Replaces every match of a pattern, including empty matches, by a fixed text. Immutable and thread-safe.
class Replacement {
 public:
  /// Reads pattern and text. \throws kData with the position of an invalid value, or of a text above 256 bytes.
  explicit Replacement(const JsonView& json);

  /// Returns the text with replacements, or nothing if there is no match. REQUIRES valid UTF-8.
  std::optional<std::string> apply(std::string_view text) const;
  const std::string& content() const { return content_; }
  /// Returns true if a match is always one character.
  bool replaces_one_character() const { return one_character_; }

 private:
  SplitPattern pattern_;
  std::string content_;
  bool one_character_;
};

}  // namespace evenkeel::tokenizer
