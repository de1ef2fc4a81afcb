#include "report/text_grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace evenkeel::report {
namespace {

constexpr std::string_view kGap = "  ";

/// Returns the number of columns of UTF-8 text: its bytes without continuation bytes.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string pad(const std::string& text, size_t width, bool left) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return left ? text + space : space + text;
}

std::string without_trailing_space(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

}  // namespace

std::vector<size_t> TextGrid::widths() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  for (const auto& group : groups_) {
    size_t inside = kGap.size() * (group.last - group.first - 1);
    for (size_t c = group.first; c < group.last; ++c) inside += widths[c];
    if (const size_t needed = width_of(group.title); needed > inside) widths[group.first] += needed - inside;
  }
  return widths;
}

std::string TextGrid::text() const {
  const auto width = widths();
  std::string out;
  if (!groups_.empty()) {
    std::string line;
    size_t column = 0;
    for (const auto& group : groups_) {
      for (; column < group.first; ++column) line += std::string(width[column] + kGap.size(), ' ');
      size_t inside = 0;
      for (; column < group.last; ++column) inside += width[column] + kGap.size();
      line += pad(group.title, inside, true);
    }
    out += without_trailing_space(line);
  }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) line += pad(row[c], width[c], c == 0) + std::string(kGap);
    out += without_trailing_space(line);
  }
  return out;
}

std::string fixed(double value, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string compact(double value) {
  constexpr std::array<std::string_view, 7> kUnits = {"", " k", " M", " G", " T", " P", " E"};
  size_t unit = 0;
  for (; std::abs(value) >= 999.95 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  const int decimals = unit == 0 && value == std::floor(value) ? 0
                       : std::abs(value) < 10                  ? 3
                       : std::abs(value) < 100                 ? 2
                                                               : 1;
  return fixed(value, decimals) + std::string(kUnits[unit]);
}

}  // namespace evenkeel::report
