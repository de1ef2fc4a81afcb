/// \file  Named classes of code points as Oniguruma 6.9.10 has them, with Unicode 16: properties, POSIX brackets and
/// letters such as \w. General categories come from unicode.h; scripts and binary properties are PCRE2's, with what
/// Unicode added since (unicode_properties.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/code_set.h"

namespace evenkeel::unicode {

/// \p{name} inside brackets: a general category, a script, a POSIX class or one of the binary properties of
/// unicode_properties.h, by its long or its short name. Case, spaces, hyphens and underscores do not count. Nothing for
/// other names.
std::optional<CodeSet> property_class(std::string_view name);

/// [:name:]; nothing for other names.
std::optional<CodeSet> posix_class(std::string_view name);

/// \d, \h, \s or \w inside brackets.
CodeSet letter_class(char letter);

/// \w, \p{word} and \b outside brackets, which also count the superscripts 1 2 3 and the fractions of Latin-1 as word
/// characters.
CodeSet word_outside_brackets();

/// `set` as a bracket expression of PCRE2, properties first where they are a part of the set.
std::string bracket_expression(const CodeSet& set);

}  // namespace evenkeel::unicode
