/// \file  How much of a written answer is right, without a model: exact match and token F1, as SQuAD counts them.
/// Source: the official evaluation scripts of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018). Texts are UTF-8.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace evenkeel {

/// Lower case as Python's lower(), then without ASCII punctuation, then without the words a, an, the, then words with
/// single spaces between.
std::string normalize_answer(std::string_view text);

/// Whether both are the same text after normalisation, and not empty: SQuAD's scripts call two empty texts a match.
bool exact_match(std::string_view output, std::string_view reference);

/// 2PR / (P + R) over the normalised words of both, counted as often as they occur. When either has no words: 0, as in
/// SQuAD 1.1 (2.0 gives 1 when neither has).
double token_f1(std::string_view output, std::string_view reference);

struct TextMatch {
  double exact_match = 0, f1 = 0;
};

/// The best over all references, each measure on its own. References without words are left out (SQuAD 2.0). Where all
/// are, as "A" or "*" is, one to the letter counts, case and white space around it aside; SQuAD's scripts would give an
/// empty output and "the" full marks. An empty output is never right. REQUIRES one reference or more.
TextMatch best_match(std::string_view output, std::span<const std::string> references);

}  // namespace evenkeel
