/// \file  Text of strangers made fit for a message: one line, no character that a terminal acts upon, no more than it
/// takes to recognise it. Knows nothing of torch.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace evenkeel {

/// Control characters (newline, tab, ESC, NUL, those of Unicode), marks that turn the direction of writing, and bytes
/// that are not UTF-8, spelled out: "\n", "\x1b", "\u{202e}", "\xff". The rest, backslashes too, stays as it is, so
/// that escaping what is escaped changes nothing.
std::string escaped(std::string_view text);

/// escaped() in at most `limit` bytes; of what is longer the beginning and the end, with the full length between them:
/// `abc... (70000 bytes) ...xyz`. Takes time for what it shows, however long the text. \param limit  40 or more
std::string shown(std::string_view text, size_t limit = 60);

/// Whether all of it is UTF-8, as TOML and JSON ask: no overlong forms, no surrogates.
bool is_utf8(std::string_view text);

}  // namespace evenkeel
