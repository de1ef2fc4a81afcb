/// \file  "Replace" in normalizers and decoders of a tokenizer.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/plain/json.h"
#include "tokenizer/pattern.h"

namespace evenkeel {

/// {"Regex": ..} or {"String": ..} under the key "pattern". \throws kData with the place
SplitPattern pattern_of(const JsonView& json);

/// Puts `content` in the place of each match of a pattern, empty matches included. Immutable and thread-safe.
class Replacement {
 public:
  /// \throws kData with the place
  explicit Replacement(const JsonView& json);

  /// Nothing where nothing matches. REQUIRES valid UTF-8.
  std::optional<std::string> apply(std::string_view text) const;
  const std::string& content() const { return content_; }

 private:
  SplitPattern pattern_;
  std::string content_;
};

}  // namespace evenkeel
