/// \file  Splits text into extended grapheme clusters, the units that a reader sees as one character. Source: Unicode
/// 16, Standard Annex 29. The data come from utf8proc and from the additions listed in grapheme_tables.h.
#pragma once

#include <cstddef>
#include <string_view>

namespace evenkeel::unicode {

/// Returns the length in bytes of the first cluster of `text`. REQUIRES non-empty, valid UTF-8. Threads: any. The first
/// call with a character beyond ASCII builds a table of one byte per code point. It is never freed.
size_t grapheme_length(std::string_view text);

}  // namespace evenkeel::unicode
