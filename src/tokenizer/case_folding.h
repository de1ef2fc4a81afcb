/// \file  What matches what under the option i, as Oniguruma 6.9.10 has it with Unicode 16: characters that case
/// folding (Unicode's statuses C and F) writes alike, and several characters that it writes for one, such as ss for the
/// sharp s.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/code_set.h"

namespace evenkeel::unicode {

/// `set` with all characters that fold to what a member folds to.
CodeSet with_all_cases(const CodeSet& set);

/// What members of `set` fold to where that is several characters: for each the sets that match them, short ones first.
std::vector<std::vector<CodeSet>> folded_sequences(const CodeSet& set);

/// Whether the two begin what one character folds to, so that the two together match that one.
bool fold_together(uint32_t first, uint32_t second);

}  // namespace evenkeel::unicode
