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

/// Whether both are the same text after normalisation.
bool exact_match(std::string_view output, std::string_view reference);

/// 2PR / (P + R) over the normalised words of both, counted as often as they occur. When either has no words: 1 if
/// neither has, else 0 (SQuAD 2.0; 1.1 gives 0).
double token_f1(std::string_view output, std::string_view reference);

struct TextMatch {
  double exact_match = 0, f1 = 0;
};

/// The best over all references, each measure on its own. References without words are left out, unless all are
/// (SQuAD 2.0). REQUIRES one reference or more.
TextMatch best_match(std::string_view output, std::span<const std::string> references);

}  // namespace evenkeel
