/// \file  Defines the named character classes of Oniguruma 6.9.10 with Unicode 16: properties, POSIX brackets, and
/// classes such as \w. General categories come from unicode.h. Scripts and binary properties come from PCRE2, with the
/// additions of newer Unicode versions (unicode_properties.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/code_set.h"

namespace evenkeel::tokenizer {

/// Returns the class \p{name} inside brackets: a general category, a script, a POSIX class or a binary property of
/// unicode_properties.h, by its long or short name. Case, spaces, hyphens and underscores are ignored. Returns nothing
/// for an unknown name.
std::optional<CodeSet> property_class(std::string_view name);

/// Returns the class [:name:], or nothing for an unknown name.
std::optional<CodeSet> posix_class(std::string_view name);

/// Returns the class \d, \h, \s or \w inside brackets. \param letter  d, h, s or w.
CodeSet letter_class(char letter);

/// Returns the word characters of \w, \p{word} and \b outside brackets. They also include the superscripts 1 2 3 and
/// the fractions of Latin-1.
CodeSet word_outside_brackets();

/// Returns `set` as a bracket expression of PCRE2. Properties that are subsets of it come first.
std::string bracket_expression(const CodeSet& set);

}  // namespace evenkeel::tokenizer
