/// \file  Implements case-insensitive matching as in Oniguruma 6.9.10 with Unicode 16 (option i). Characters match if
/// they have the same case folding (statuses C and F). A sequence of characters may match one character, e.g. ss and
/// the sharp s.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/code_set.h"

namespace evenkeel::tokenizer {

/// Returns `set` and all characters with the same case folding as a member.
CodeSet with_all_cases(const CodeSet& set);

/// Returns the sequences that match a member of `set` whose folding has several characters. A sequence is a list of
/// sets, one per character; shorter sequences come first.
std::vector<std::vector<CodeSet>> folded_sequences(const CodeSet& set);

/// Returns how many code points at the front of `codes` match one character together: 3 or 2; 1 if no sequence does.
/// Oniguruma tries only the longest sequence and then continues after it. \param codes  one or more
size_t folded_together(std::span<const uint32_t> codes);

/// Returns the characters whose case folding equals the case folding of the sequence `codes`. REQUIRES that there is
/// one.
CodeSet characters_of(std::span<const uint32_t> codes);

/// Returns true if `codes` are the case folding of a character or the beginning of such a folding. \param codes  two or
/// more
bool begin_a_folding(std::span<const uint32_t> codes);

}  // namespace evenkeel::tokenizer
