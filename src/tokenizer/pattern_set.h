/// \file  Bracket expressions of Oniguruma's patterns: characters, ranges, escapes, POSIX brackets, nested sets and &&.
#pragma once

#include "tokenizer/pattern_cursor.h"

namespace evenkeel {

/// A set as it is written: its members, or all others. The option i adds the other cases of what is written.
struct PatternSet {
  unicode::CodeSet members;
  bool negated = false;
};

/// Reads a set whose [ has been read, to behind its ]. \throws kData on what Oniguruma refuses or reads with a warning.
PatternSet read_set(PatternCursor& cursor);

}  // namespace evenkeel
