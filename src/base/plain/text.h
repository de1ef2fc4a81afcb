/// \file  Escapes and shortens untrusted text for one-line messages, checks UTF-8, and parses numbers. Does not depend
/// on LibTorch.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace evenkeel {

/// Escapes everything that can change how a terminal or a reader sees a line: control characters (newline, tab, ESC,
/// NUL, the Unicode controls), marks that change the writing direction, and bytes that are not UTF-8. Examples: "\n",
/// "\x1b", "\u{202e}", "\xff". All other text, backslashes included, is unchanged, so escaping twice gives the same
/// result as escaping once.
std::string escaped(std::string_view text);

/// Returns escaped(text), shortened to at most `limit` bytes. A longer text keeps its beginning and end, with the full
/// length between them: `abc... (70000 bytes) ...xyz`. The cost grows with `limit`, not with the length of the text.
/// \param limit  maximum bytes of the result, at least 40
std::string shown(std::string_view text, size_t limit = 60);

/// Returns true when the whole text is valid UTF-8 as TOML and JSON require: no overlong forms, no surrogates.
bool is_utf8(std::string_view text);

/// Parses all of `text` as a number of type Number, as std::from_chars reads one: no white space, no leading plus.
/// \param base  2 to 36, for integers \return nothing when other characters are left or the type cannot hold the value
template <typename Number>
std::optional<Number> parse_number(std::string_view text, int base = 10) {
  Number value{};
  const char* end = text.data() + text.size();
  std::from_chars_result read;
  if constexpr (std::is_floating_point_v<Number>)
    read = std::from_chars(text.data(), end, value);
  else
    read = std::from_chars(text.data(), end, value, base);
  return read.ec == std::errc() && read.ptr == end ? std::optional(value) : std::nullopt;
}

}  // namespace evenkeel
