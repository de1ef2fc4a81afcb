#include "jinja/text_functions.h"

#include <algorithm>

#include "base/plain/error.h"
#include "base/unicode/unicode.h"

namespace evenkeel::jinja {
namespace {

/// Removes characters for which `removes` is true from one or both ends.
template <typename Goes>
std::string_view stripped_while(std::string_view text, Side side, Goes&& removes) {
  while (side != Side::kRight && !text.empty()) {
    const auto first = unicode::decode(text.data());
    if (!removes(first.value)) break;
    text.remove_prefix(first.length);
  }
  while (side != Side::kLeft && !text.empty()) {
    const auto last = unicode::decode_before(text.data(), text.data() + text.size());
    if (!removes(last.value)) break;
    text.remove_suffix(last.length);
  }
  return text;
}

/// Inserts `inserted` before each character and at the end, at most `most` times; below 0: without limit.
std::string between_all(std::string_view text, std::string_view inserted, int64_t most) {
  std::string out;
  int64_t done = 0;
  for (const auto one : characters(text))
    out.append(most < 0 || done++ < most ? inserted : std::string_view()).append(one);
  return out.append(most < 0 || done < most ? inserted : std::string_view());
}

bool ends_line(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

bool is_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t leading_space(std::string_view text) { return text.size() - stripped_while(text, Side::kLeft, is_space).size(); }

size_t trailing_space_begin(std::string_view text) { return stripped_while(text, Side::kRight, is_space).size(); }

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t at = 0; at < text.size(); at += all.back().size())
    all.push_back(text.substr(at, unicode::decode(text.data() + at).length));
  return all;
}

std::string_view stripped(std::string_view text, Side side, const std::string* unwanted) {
  if (!unwanted) return stripped_while(text, side, is_space);
  std::u32string set;
  for (const auto one : characters(*unwanted)) set += static_cast<char32_t>(unicode::decode(one.data()).value);
  return stripped_while(text, side, [&](uint32_t c) { return set.find(static_cast<char32_t>(c)) != set.npos; });
}

std::vector<std::string> split_at_space(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  text = stripped(text, Side::kLeft);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_space(unicode::decode(text.data() + end).value))
      end += unicode::decode(text.data() + end).length;
    parts.emplace_back(text.substr(0, end));
    text = stripped(text.substr(end), Side::kLeft);
  }
  return parts;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator, int64_t most) {
  EK_CHECK(!separator.empty(), kData, "split: the separator is empty");
  std::vector<std::string> parts;
  for (size_t at;
       (most < 0 || static_cast<int64_t>(parts.size()) < most) && (at = text.find(separator)) != text.npos;) {
    parts.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.emplace_back(text);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto one = unicode::decode(text.data() + at);
    const size_t end = at;
    at += one.length;
    if (!ends_line(one.value)) continue;
    lines.push_back(text.substr(begin, end - begin));
    if (text.substr(end).starts_with("\r\n")) ++at;
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t most) {
  if (from.empty()) return between_all(text, to, most);
  std::string out;
  const auto parts = split_at(text, from, most);
  for (size_t i = 0; i < parts.size(); ++i) out.append(i ? to : std::string_view()).append(parts[i]);
  return out;
}

}  // namespace evenkeel::jinja
