/// \file  What a tokenizer needs to know of Unicode: classes of code points as Unicode 16 has them (the version of the
/// `tokenizers` library's regex), canonical forms (NFC, NFD) as that library makes them, and UTF-8. Base data from
/// utf8proc; where that is older or newer than the library, the tables of unicode_tables.h decide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace evenkeel::unicode {

/// Bits of flags(): what a code point is.
inline constexpr uint8_t kLetter = 1;  ///< \p{L}
inline constexpr uint8_t kNumber = 2;  ///< \p{N}
inline constexpr uint8_t kSpace = 4;   ///< White_Space, 25 code points
inline constexpr uint8_t kWord = 8;    ///< alphabetic, mark, decimal digit, connector, join control
inline constexpr uint8_t kComposed =
    16;  ///< neither changes under NFC nor composes with, or moves before, what precedes it
inline constexpr uint8_t kFrozen = 32;  ///< newer than the library's NFC data: left alone

/// One byte per code point below 0x110000; built at first use (about 15 ms) and kept.
const uint8_t* flags();

struct CodePoint {
  uint32_t value;
  uint32_t length;  ///< bytes, 1-4
};

/// The code point that starts at `at`. REQUIRES valid UTF-8.
inline CodePoint decode(const char* at) {
  const auto byte = [at](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

/// The code point that ends just before `end`. REQUIRES valid UTF-8, begin < end.
CodePoint decode_before(const char* begin, const char* end);

void append(std::string& out, uint32_t code_point);

/// Byte offset of the first ill-formed sequence (overlong, surrogate, above 0x10FFFF, cut), or npos.
size_t find_invalid(std::string_view text);

/// Each maximal ill-formed part becomes U+FFFD (the practice of the Unicode standard, section 3.9).
std::string replace_invalid(std::string_view text);

/// `text` in NFC: the text itself when it is composed already, else a view of `storage`. REQUIRES valid UTF-8.
/// Cost: one table look-up per code point; runs that need work are sorted and composed in O(n log n).
std::string_view nfc(std::string_view text, std::string& storage);

/// `text` in NFD, as the library decomposes: the text itself when it is ASCII, else a view of `storage`. REQUIRES valid
/// UTF-8.
std::string_view nfd(std::string_view text, std::string& storage);

/// `text` in NFKD and in NFKC, likewise.
std::string_view nfkd(std::string_view text, std::string& storage);
std::string_view nfkc(std::string_view text, std::string& storage);

/// The general category as Unicode 16 has it, a utf8proc_category_t.
int category(uint32_t code_point);

}  // namespace evenkeel::unicode
