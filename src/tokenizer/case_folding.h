/// \file  Implements case-insensitive matching as in Oniguruma 6.9.10 with Unicode 16 (option i). Characters match if
/// they have the same case folding (statuses C and F). A sequence of characters may match one character, e.g. ss and
/// the sharp s.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/code_set.h"

namespace evenkeel::unicode {

/// Returns `set` and all characters with the same case folding as a member.
CodeSet with_all_cases(const CodeSet& set);

/// Returns the sequences that match a member of `set` whose folding has several characters. A sequence is a list of
/// sets, one per character; shorter sequences come first.
std::vector<std::vector<CodeSet>> folded_sequences(const CodeSet& set);

/// Returns true if `first` and `second` begin the case folding of one character, so that together they may match it.
bool fold_together(uint32_t first, uint32_t second);

}  // namespace evenkeel::unicode
