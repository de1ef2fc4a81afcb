/// \file  Implements Python's string methods on UTF-8 text. Characters are code points; white space is Python's. All
/// functions REQUIRE valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::jinja {

/// Returns Python's str.isspace() of one character, which equals \s of Python's regular expressions.
bool is_space(uint32_t code_point);

/// Returns the number of bytes of leading white space.
size_t leading_space(std::string_view text);
/// Returns the byte offset at which the trailing white space begins.
size_t trailing_space_begin(std::string_view text);

/// Returns one view into `text` per character.
std::vector<std::string_view> characters(std::string_view text);

/// The sides that stripped() works on.
enum class Side { kBoth, kLeft, kRight };
/// Implements str.strip(), lstrip() and rstrip(). Removes white space, or the characters of `unwanted` if it is not
/// null. Returns a view into `text`.
std::string_view stripped(std::string_view text, Side side, const std::string* unwanted = nullptr);

/// Implements str.split() without and with a separator. \param most  largest number of splits; below 0: no limit
/// \throws kData for an empty separator
std::vector<std::string> split_at_space(std::string_view text, int64_t most = -1);
std::vector<std::string> split_at(std::string_view text, std::string_view separator, int64_t most = -1);
/// Implements str.splitlines(). The lines are views into `text`.
std::vector<std::string_view> split_lines(std::string_view text);

/// Implements str.lower() and str.upper(). \param what  the operation, for the message
/// \throws kData for a character that is not in Unicode 14, and for a capital sigma in lowered().
std::string lowered(std::string_view text, std::string_view what);
std::string uppered(std::string_view text, std::string_view what);
/// Implements str.title() if `each_word` is true, otherwise str.capitalize(). \throws as lowered().
std::string titled(std::string_view text, bool each_word, std::string_view what);
/// Returns true if repr() shows the character unescaped. \throws kData for a character that is not in Unicode 14.
bool is_printable(uint32_t code_point);
/// Replaces the decimal digits of all scripts by ASCII digits, as int() and float() read them. \param what  the
/// operation, for the message. \throws kData for a digit that is not in Unicode 14.
std::string with_ascii_digits(std::string_view text, std::string_view what);

/// Implements str.replace(). \param most  largest number of replacements; below 0: no limit
std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t most = -1);

}  // namespace evenkeel::jinja
