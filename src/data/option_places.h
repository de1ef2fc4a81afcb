/// \file  Finds answer options in a text as whole words. Texts are UTF-8; invalid bytes count as U+FFFD.
///
/// A word consists of letters, marks, digits and joiners (Unicode 16). Scripts without spaces between words have a word
/// boundary at every letter: Han, Hiragana, Thai, Lao, Khmer, Myanmar and the rest of Unicode's class SA, Javanese and
/// Balinese. A mark is never separated from its letter. Korean appends particles to a word without a space: if no
/// option is found as a whole word, an option that is followed by Hangul counts too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel::data {

/// An option found in a text.
struct OptionPlace {
  size_t option = 0;  ///< index of the option, from 0
  size_t at = 0;      ///< byte offset in the text
};

/// Returns the leftmost option in the text. At the same position the longest option wins; of equal options the first.
/// Empty options are ignored. Returns nothing if there is none.
std::optional<OptionPlace> first_option(std::span<const std::string> options, std::string_view text);

/// Returns true for a character of a script that puts no spaces between words.
bool is_unspaced(uint32_t code_point);

/// Converts each character to lower case, one code point to one code point. Invalid bytes become U+FFFD.
std::string lower_case(std::string_view text);

}  // namespace evenkeel::data
