/// \file  Metaspace: spaces written as a visible character, as SentencePiece does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel {

struct Metaspace {
  enum Scheme { kAlways, kFirst, kNever };

  std::string replacement;  ///< one character
  Scheme scheme;            ///< which stretches of a text begin with it
  bool splits;              ///< into words, each with the replacement before it

  /// `text` with replacements for its spaces; `first`: it stands at the beginning of the whole text.
  std::string written(std::string_view text, bool first) const;
  /// Appends the words of a text that has been written so.
  void words(std::string_view text, std::vector<std::string_view>& out) const;
};

/// Reads also the older key add_prefix_space. \throws kData with the place
Metaspace metaspace_of(const JsonView& json);

}  // namespace evenkeel
