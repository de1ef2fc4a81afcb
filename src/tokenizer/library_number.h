/// \file  Gives numbers of a tokenizer.json the value that the `tokenizers` library reads. Its JSON reader rounds
/// twice, so that one number in eight differs in the last bit. This bit can decide between two divisions of a word
/// whose scores are the same numbers added in a different order.
#pragma once

namespace evenkeel::tokenizer {

/// Returns the value that the library reads from the shortest decimal form of `value`: the digits as a whole number,
/// times or divided by a power of ten. REQUIRES a finite value.
double as_library_reads(double value);

}  // namespace evenkeel::tokenizer
