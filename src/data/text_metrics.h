/// \file  Computes SQuAD's exact match and token F1 of a generated answer.
/// Source: the official evaluation scripts of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018). Texts are UTF-8.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace evenkeel::data {

/// Removes blanks and line breaks at both ends of a text.
std::string strip(std::string_view text);

/// Normalises a text as SQuAD does: lower case as Python's lower(), no ASCII punctuation, no words "a", "an" and "the",
/// and single spaces between words.
std::string normalize_answer(std::string_view text);

/// Returns true if both texts are equal after normalisation and not empty. (SQuAD's scripts count two empty texts as a
/// match.)
bool exact_match(std::string_view output, std::string_view reference);

/// Returns 2PR / (P + R), of precision P and recall R over the normalised words, counted with multiplicity. If either
/// has no words, the result is 0, as in SQuAD 1.1. (SQuAD 2.0 gives 1 if neither has words.)
double token_f1(std::string_view output, std::string_view reference);

/// Both scores, 0 to 1.
struct TextMatch {
  double exact_match = 0, f1 = 0;
};

/// Returns the best score over all references, each measure separately. References without words after normalisation
/// are ignored (SQuAD 2.0). If no reference has words, e.g. "A" or "*", both scores are 1 if the output equals a
/// reference up to case and surrounding white space, else 0. (SQuAD's scripts would count an empty output, or "the", as
/// a match.) An empty output scores 0. REQUIRES at least one reference (kInternal).
TextMatch best_match(std::string_view output, std::span<const std::string> references);

}  // namespace evenkeel::data
