/// \file  Implements Metaspace: spaces are replaced by a visible character, as in SentencePiece.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel::tokenizer {

/// The Metaspace pre-tokenizer.
struct Metaspace {
  /// Selects the texts to which the replacement is prepended: all, only the first of the whole text, or none.
  enum Scheme { kAlways, kFirst, kNever };

  std::string replacement;  ///< one character
  Scheme scheme;
  bool splits;  ///< true: splits into words, each beginning with the replacement

  /// Returns `text` with spaces replaced. \param first  true if `text` begins the whole text.
  std::string written(std::string_view text, bool first) const;
  /// Appends the words of a text returned by written() to `out`, as views into `text`.
  void words(std::string_view text, std::vector<std::string_view>& out) const;
};

/// Reads the settings. The older key add_prefix_space is accepted. \throws kData with the place.
Metaspace metaspace_of(const JsonView& json);

}  // namespace evenkeel::tokenizer
