/// \file  Implements the parts of Unicode that tokenizers need: classes of code points of Unicode 16 (the version of
/// the regular expressions of the `tokenizers` library), the normal forms NFC, NFD, NFKC and NFKD as that library
/// computes them, and UTF-8. The data come from utf8proc. unicode_tables.h lists the differences between the versions
/// of utf8proc and of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace evenkeel::unicode {

/// Bits of flags(): properties of a code point.
inline constexpr uint8_t kLetter = 1;  ///< \p{L}
inline constexpr uint8_t kNumber = 2;  ///< \p{N}
inline constexpr uint8_t kSpace = 4;   ///< White_Space, 25 code points
inline constexpr uint8_t kWord = 8;    ///< alphabetic, mark, decimal digit, connector, join control
/// NFC never changes this code point, never joins it with the one before it, and never reorders the two.
inline constexpr uint8_t kComposed = 16;
inline constexpr uint8_t kFrozen = 32;  ///< newer than the NFC data of the library, which leaves it unchanged

/// Returns a table with one byte per code point below 0x110000. The first call builds it (about 15 ms); it is never
/// freed. Threads: any.
const uint8_t* flags();

/// A decoded code point.
struct CodePoint {
  uint32_t value;
  uint32_t length;  ///< bytes, 1-4
};

/// Decodes the code point that starts at `at`. REQUIRES valid UTF-8.
inline CodePoint decode(const char* at) {
  const auto byte = [at](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

/// Decodes the code point that ends just before `end`. REQUIRES valid UTF-8, begin < end.
CodePoint decode_before(const char* begin, const char* end);

/// Appends a code point to `out` as UTF-8.
void append(std::string& out, uint32_t code_point);

/// Returns the byte offset of the first ill-formed sequence (overlong, surrogate, above 0x10FFFF, truncated), or npos.
size_t find_invalid(std::string_view text);

/// Replaces each maximal ill-formed part by U+FFFD (Unicode standard, section 3.9).
std::string replace_invalid(std::string_view text);

/// Returns `text` in NFC: `text` itself if it is already composed, otherwise a view of `storage`. REQUIRES valid UTF-8.
/// Cost: one table look-up per code point; parts that change are sorted and composed in O(n log n).
std::string_view nfc(std::string_view text, std::string& storage);

/// Returns `text` in NFD as the library decomposes it: `text` itself if it is ASCII, otherwise a view of `storage`.
/// REQUIRES valid UTF-8.
std::string_view nfd(std::string_view text, std::string& storage);

/// These work as nfd(), for NFKD and NFKC.
std::string_view nfkd(std::string_view text, std::string& storage);
std::string_view nfkc(std::string_view text, std::string& storage);

/// Returns the general category in Unicode 16, a utf8proc_category_t.
int category(uint32_t code_point);

}  // namespace evenkeel::unicode
