#include "report/text_grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace evenkeel::report {
namespace {

constexpr std::string_view kGap = "  ";

constexpr size_t kMostNameWidth = kPageWidth / 2;

std::string pad(const std::string& text, size_t width, bool left) {
  const std::string space(width - std::min(width, columns_of_text(text)), ' ');
  return left ? text + space : space + text;
}

std::string without_trailing_space(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

}  // namespace

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

std::vector<size_t> TextGrid::widths() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], columns_of_text(row[c]));
  widths[0] = std::min(widths[0], kMostNameWidth);
  const size_t left = kPageWidth - std::min(kPageWidth - kMostNameWidth / 2, key_width(widths));
  for (const auto& group : groups_) {
    size_t inside = kGap.size() * (group.last - group.first - 1);
    for (size_t c = group.first; c < group.last; ++c) inside += widths[c];
    const size_t needed = std::min(columns_of_text(group.title), left);
    if (needed > inside) widths[group.first] += needed - inside;
  }
  return widths;
}

/// Returns the width of the key columns with the gaps behind them.
size_t TextGrid::key_width(const std::vector<size_t>& width) const {
  size_t sum = 0;
  for (size_t c = 0; c < keys_; ++c) sum += width[c] + kGap.size();
  return sum;
}

/// Returns the end of the group that begins at a column; that column's end if none begins there.
size_t TextGrid::end_of_group(size_t column) const {
  for (const auto& group : groups_)
    if (group.first == column) return group.last;
  return column + 1;
}

std::vector<TextGrid::Block> TextGrid::blocks(const std::vector<size_t>& width) const {
  const auto width_of = [&](size_t from, size_t to) {
    size_t sum = 0;
    for (size_t c = from; c < to; ++c) sum += width[c] + kGap.size();
    return sum;
  };
  const size_t page = kPageWidth + kGap.size(), keys = key_width(width);
  std::vector<Block> all{{keys_, keys_}};
  for (size_t from = keys_; from < width.size();) {
    const size_t group = end_of_group(from);
    const size_t to = keys + width_of(from, group) <= page ? group : from + 1;
    if (all.back().last > all.back().first && keys + width_of(all.back().first, to) > page) all.push_back({from, from});
    all.back().last = to;
    from = to;
  }
  return all;
}

std::string TextGrid::group_lines(const Block& block, const std::vector<size_t>& width) const {
  std::vector<std::string> lines;
  size_t at = key_width(width);
  for (size_t c = block.first; c < block.last;) {
    const auto group =
        std::find_if(groups_.begin(), groups_.end(), [&](const Group& one) { return c >= one.first && c < one.last; });
    const size_t end = group == groups_.end() ? c + 1 : std::min(group->last, block.last);
    size_t inside = 0;
    for (size_t i = c; i < end; ++i) inside += width[i] + kGap.size();
    if (group != groups_.end() && !group->title.empty()) {
      const auto parts = pieces(group->title, std::max(inside, kGap.size() + 1) - kGap.size());
      lines.resize(std::max(lines.size(), parts.size()));
      for (size_t i = 0; i < parts.size(); ++i) lines[i] = pad(lines[i], at, true) + parts[i];
    }
    at += inside;
    c = end;
  }
  std::string text;
  for (auto& line : lines) text += without_trailing_space(std::move(line));
  return text;
}

std::string TextGrid::row_lines(const std::vector<std::string>& row, const Block& block,
                                const std::vector<size_t>& width) const {
  const auto names = pieces(row[0], std::max<size_t>(1, width[0]));
  std::string line = pad(names[0], width[0], true) + std::string(kGap);
  for (size_t c = 1; c < keys_; ++c) line += pad(row[c], width[c], false) + std::string(kGap);
  for (size_t c = block.first; c < block.last; ++c) line += pad(row[c], width[c], false) + std::string(kGap);
  std::string text = without_trailing_space(std::move(line));
  for (size_t i = 1; i < names.size(); ++i) text += names[i] + '\n';
  return text;
}

std::string TextGrid::text() const {
  const auto width = widths();
  std::string out;
  for (const auto& block : blocks(width)) {
    if (!out.empty()) out += '\n';
    out += group_lines(block, width);
    for (const auto& row : rows_) out += row_lines(row, block, width);
  }
  return out;
}

}  // namespace evenkeel::report
