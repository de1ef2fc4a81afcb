#include "report/text_lines.h"

#include <algorithm>
#include <sstream>

namespace evenkeel::report {

size_t columns_of_text(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::vector<std::string> pieces(std::string_view name, size_t width) {
  std::vector<std::string> all(1);
  for (const char byte : name) {
    const bool begins_character = (byte & 0xC0) != 0x80;
    if (begins_character && columns_of_text(all.back()) == width) all.emplace_back();
    all.back() += byte;
  }
  return all;
}

std::string wrapped(const std::string& text, size_t width, size_t indent) {
  std::istringstream words(text);
  std::string all;
  size_t used = 0;
  for (std::string word; words >> word;) {
    const size_t length = columns_of_text(word);
    if (used > 0 && used + 1 + length > width) {
      all += '\n' + std::string(indent, ' ');
      used = indent;
    } else if (used > 0) {
      all += ' ';
      ++used;
    }
    all += word;
    used += length;
  }
  return all + '\n';
}

}  // namespace evenkeel::report
