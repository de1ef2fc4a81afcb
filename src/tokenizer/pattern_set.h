/// \file  Reads bracket expressions of Oniguruma's patterns: characters, ranges, escapes, POSIX brackets, nested sets
/// and &&.
#pragma once

#include "tokenizer/pattern_cursor.h"

namespace evenkeel::tokenizer {

/// A bracket expression: its members, or all other characters if `negated`. Case folding (option i) is not applied.
struct PatternSet {
  CodeSet members;
  bool negated = false;
};

/// Reads the rest of a set whose "[" has been read, including its "]". \throws kData if Oniguruma rejects it, or warns
/// about it and reads it in its own way.
PatternSet read_set(PatternCursor& cursor);

}  // namespace evenkeel::tokenizer
