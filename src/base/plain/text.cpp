#include "base/plain/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace evenkeel {
namespace {

/// Returns the length of the UTF-8 character at the beginning of `text`, or 0 if it is not valid.
size_t character_length(std::string_view text, uint32_t& code) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return code = byte(0), 1;
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return 0;
  code = byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kLeast[length] || code > 0x10FFFF || surrogate ? 0 : length;
}

/// Returns whether a terminal interprets the character: controls, line and paragraph separators, direction marks.
bool is_interpreted(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x200E && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0xFEFF;
}

template <typename Number>
std::string formatted(const char* format, Number value) {
  std::array<char, 24> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

/// Removes the first character of `text` and returns it, escaped if necessary.
std::string take_character(std::string_view& text) {
  uint32_t code = 0;
  const size_t length = character_length(text, code);
  const std::string_view raw = text.substr(0, length == 0 ? 1 : length);
  text.remove_prefix(raw.size());
  if (length == 0) return formatted("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(raw[0])));
  if (!is_interpreted(code)) return std::string(raw);
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  if (code == '\r') return "\\r";
  return code < 0x80 ? formatted("\\x%02x", code) : formatted("\\u{%x}", code);
}

/// Returns the last characters of `text`, escaped if necessary, in at most `limit` bytes.
std::string last_characters(std::string_view text, size_t limit) {
  std::string_view rest = text.substr(text.size() - limit);
  for (int i = 0; i < 3 && (static_cast<unsigned char>(rest.front()) & 0xC0) == 0x80; ++i) rest.remove_prefix(1);
  std::vector<std::string> characters;
  while (!rest.empty()) characters.push_back(take_character(rest));
  size_t first = characters.size();
  for (size_t used = 0; first > 0 && used + characters[first - 1].size() <= limit; --first)
    used += characters[first - 1].size();
  std::string result;
  for (; first < characters.size(); ++first) result += characters[first];
  return result;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) result += take_character(text);
  return result;
}

std::string shown(std::string_view text, size_t limit) {
  if (text.size() <= limit)
    if (std::string whole = escaped(text); whole.size() <= limit) return whole;
  const std::string mark = formatted("... (%zu bytes) ...", text.size());
  const size_t end = (limit - mark.size()) / 2, start = limit - mark.size() - end;
  std::string result;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string character = take_character(rest);
    if (result.size() + character.size() > start) break;
    result += character;
  }
  return result + mark + last_characters(text, std::min(end, text.size()));
}

bool is_utf8(std::string_view text) {
  uint32_t code = 0;
  while (!text.empty()) {
    const size_t length = character_length(text, code);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace evenkeel
