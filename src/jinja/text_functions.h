/// \file  Strings as Python has them: of code points, with Python's white space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::jinja {

/// str.isspace() of one character, which is also \s of a regular expression.
bool is_space(uint32_t code_point);

/// Bytes of white space in front. REQUIRES valid UTF-8, here and below.
size_t leading_space(std::string_view text);
/// Where the white space at the end begins.
size_t trailing_space_begin(std::string_view text);

/// One view per character.
std::vector<std::string_view> characters(std::string_view text);

enum class Side { kBoth, kLeft, kRight };
/// str.strip(), lstrip(), rstrip(): white space, or characters of `unwanted` when it is given.
std::string_view stripped(std::string_view text, Side side, const std::string* unwanted = nullptr);

/// str.split() at white space / at `separator`. \param most  cuts; below 0: as many as there are
std::vector<std::string> split_at_space(std::string_view text, int64_t most = -1);
std::vector<std::string> split_at(std::string_view text, std::string_view separator, int64_t most = -1);

/// str.lower() and str.upper(). \throws kData naming `what` for a character that Unicode 14 lacks, and for the small
/// form of a Greek sigma
std::string lowered(std::string_view text, std::string_view what);
std::string uppered(std::string_view text, std::string_view what);
/// str.title(), or of the first character alone: str.capitalize().
std::string titled(std::string_view text, bool each_word, std::string_view what);
/// Whether repr() shows a character as it is. \throws kData for one that Unicode 14 lacks
bool is_printable(uint32_t code_point);

/// str.replace(). \param most  replacements; below 0: all
std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t most = -1);

}  // namespace evenkeel::jinja
