/// \file  Bracket expressions of Oniguruma's patterns: characters, ranges, escapes, POSIX brackets, nested sets and &&.
#pragma once

#include "tokenizer/pattern_cursor.h"

namespace evenkeel {

/// Reads a set whose [ has been read, to behind its ]. \throws kData on what Oniguruma refuses or reads with a warning.
unicode::CodeSet read_set(PatternCursor& cursor, bool ignore_case);

/// The set with the other cases of its letters. \throws kData when it has letters outside ASCII
unicode::CodeSet with_other_cases(const unicode::CodeSet& set, const PatternCursor& cursor);

}  // namespace evenkeel
