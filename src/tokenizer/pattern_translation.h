/// \file  Translates patterns from Oniguruma's syntax, as compiled by the `tokenizers` library, to PCRE2's. Each class
/// becomes the set of code points that Oniguruma uses; groups and quantifiers become their equivalents.
#pragma once

#include <string>
#include <string_view>

namespace evenkeel::tokenizer {

/// Returns the pattern in PCRE2's syntax, for PCRE2_UTF, PCRE2_MULTILINE and \n as newline. REQUIRES valid UTF-8.
/// \throws kData naming the pattern and the construct if it is malformed or has no exact equivalent. Not supported:
/// calls, callouts, absence, conditions, \G \K \X \y \Y, the options x, W, D, S and P, octal and control escapes,
/// {3,1}, and property names that character_classes.h does not list. A back reference is supported if its group comes
/// earlier, no quantifier repeats the group, and the reference is neither in a look-behind nor under the option i.
/// Under the option i, letter sequences that match one character (ss, st, ff, fi, fl and others) are supported unless a
/// parenthesis divides them.
std::string translate_pattern(std::string_view pattern);

/// Returns a pattern that matches `text` only.
std::string quoted_pattern(std::string_view text);

}  // namespace evenkeel::tokenizer
