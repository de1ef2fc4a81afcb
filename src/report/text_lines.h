/// \file  Divides text into lines of a page.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::report {

inline constexpr size_t kPageWidth = 80;  ///< characters per line, at most

/// Breaks a text at spaces into lines of at most `width` columns, each with a line feed; later lines are indented.
/// Longer words stay whole.
std::string wrapped(const std::string& text, size_t width = kPageWidth, size_t indent = 2);
/// Returns the number of columns of UTF-8 text: its bytes without continuation bytes.
size_t columns_of_text(std::string_view text);
/// Splits a name between characters into pieces of at most `width` columns. REQUIRES width > 0.
std::vector<std::string> pieces(std::string_view name, size_t width);

}  // namespace evenkeel::report
