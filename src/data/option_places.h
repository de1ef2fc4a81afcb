/// \file  Where one of several options stands in a text, as a word of its own. Texts are UTF-8; what is not counts as
/// U+FFFD.
///
/// A word goes on over letters, marks, digits and joiners of every script (Unicode 16). In scripts that put no spaces
/// between words (Han, Hiragana, Thai, Lao, Khmer, Myanmar and the others of Unicode's class SA, Javanese, Balinese) a
/// word may begin and end at every letter; no script parts a mark from the letter it stands on. Korean writes particles
/// behind a word without a space: where no option stands for itself, one that Hangul goes on behind does.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel {

struct OptionPlace {
  size_t option = 0;  ///< number of the option, 0 = the first
  size_t at = 0;      ///< byte of the text where it begins
};

/// The leftmost place of any of the options; at the same place the longest, of equal ones the first. None that is empty
/// is found.
std::optional<OptionPlace> first_option(std::span<const std::string> options, std::string_view text);

/// Every letter's lower case, one for one.
std::string lower_case(std::string_view text);

}  // namespace evenkeel
