/// \file  Patterns in Oniguruma's syntax, as the `tokenizers` library compiles them, rewritten for PCRE2: every class
/// becomes an explicit set of code points as Oniguruma has it, every group and quantifier its counterpart.
#pragma once

#include <string>
#include <string_view>

namespace evenkeel {

/// The pattern in PCRE2's syntax, for PCRE2_UTF and PCRE2_MULTILINE with \n as the newline. REQUIRES valid UTF-8.
/// \throws kData naming the pattern and the construct: malformed, or without an exact counterpart. These are refused:
/// back references, calls, callouts, absence, conditions, \G \K \X \y \Y, the options x, W, D, S and P, octal and
/// control escapes, {3,1}, other property names than character_classes.h has, and under the option i letters that
/// stand together for one that folds to them (ss, st, ff, fi, fl and the like).
std::string translate_pattern(std::string_view pattern);

/// `text` as a pattern that matches it alone.
std::string quoted_pattern(std::string_view text);

}  // namespace evenkeel
