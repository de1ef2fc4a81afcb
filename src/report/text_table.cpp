#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "report/table.h"

namespace evenkeel::report {
namespace {

constexpr std::string_view kGap = "  ";
constexpr size_t kLeastNameWidth = 12, kMostNameWidth = kPageWidth / 2;

std::string pad(const std::string& text, size_t width, bool left) {
  const std::string space(width - std::min(width, columns_of_text(text)), ' ');
  return left ? text + space : space + text;
}

std::string without_trailing_space(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

/// Formats the cells of a table in columns.
class TextLayout {
 public:
  explicit TextLayout(const Table& table) : table_(table), groups_(table.groups), width_(table.head.size(), 0) {
    set_texts();
    set_widths();
  }
  std::string text() const {
    std::string out;
    for (const auto& block : blocks()) {
      if (!out.empty()) out += '\n';
      out += group_lines(block);
      for (const auto& row : texts_) out += row_lines(row, block);
    }
    return out;
  }

 private:
  /// Some columns of the table: the keys and [first, last).
  struct Block {
    size_t first, last;
  };

  /// Best cells of a column are marked by an asterisk, the others of the column by a space. Line feeds and other
  /// control characters, which names from elsewhere may have, are escaped.
  void set_texts() {
    texts_.push_back(table_.head);
    for (const auto& row : table_.rows) {
      auto& texts = texts_.emplace_back();
      for (size_t c = 0; c < row.size(); ++c) texts.push_back(cell_text(row[c], has_best(c)));
    }
    for (auto& row : texts_)
      for (auto& text : row) text = escaped(text);
  }
  bool has_best(size_t column) const {
    return std::any_of(table_.rows.begin(), table_.rows.end(), [&](const auto& row) { return row[column].best; });
  }
  static std::string cell_text(const Cell& cell, bool marks) {
    const auto text = cell.interval.empty() ? cell.text : concat(cell.text, ' ', cell.interval);
    return text + (marks ? cell.best ? "*" : " " : "");
  }

  void set_widths() {
    for (const auto& row : texts_)
      for (size_t c = 0; c < row.size(); ++c) width_[c] = std::max(width_[c], columns_of_text(row[c]));
    width_[0] = std::min(width_[0], name_width());
    const size_t left = kPageWidth - std::min(kPageWidth - kMostNameWidth / 2, width_of(0, table_.keys));
    for (const auto& group : groups_) {
      const size_t inside = width_of(group.first, group.last) - kGap.size();
      const size_t needed = std::min(columns_of_text(group.title), left);
      if (needed > inside) width_[group.first] += needed - inside;
    }
  }
  /// Returns the largest width of the first column: what the others leave on the page, if that is not too little.
  size_t name_width() const {
    const size_t others = width_of(1, width_.size());
    const size_t left = kPageWidth - std::min(kPageWidth, others);
    return left < kLeastNameWidth ? kMostNameWidth : std::min(left, std::max(kMostNameWidth, left));
  }
  /// Returns the width of the columns [from, to) with the gaps behind them.
  size_t width_of(size_t from, size_t to) const {
    size_t sum = 0;
    for (size_t c = from; c < to; ++c) sum += width_[c] + kGap.size();
    return sum;
  }

  /// Returns the end of the group that begins at a column; that column's end if none begins there.
  size_t end_of_group(size_t column) const {
    for (const auto& group : groups_)
      if (group.first == column) return group.last;
    return column + 1;
  }
  std::vector<Block> blocks() const {
    const size_t page = kPageWidth + kGap.size(), keys = width_of(0, table_.keys);
    std::vector<Block> all{{table_.keys, table_.keys}};
    for (size_t from = table_.keys; from < width_.size();) {
      const size_t group = end_of_group(from);
      const size_t to = keys + width_of(from, group) <= page ? group : from + 1;
      if (all.back().last > all.back().first && keys + width_of(all.back().first, to) > page)
        all.push_back({from, from});
      all.back().last = to;
      from = to;
    }
    return all;
  }

  std::string group_lines(const Block& block) const {
    std::vector<std::string> lines;
    size_t at = width_of(0, table_.keys);
    for (size_t c = block.first; c < block.last;) {
      const auto group = std::find_if(groups_.begin(), groups_.end(),
                                      [&](const ColumnGroup& one) { return c >= one.first && c < one.last; });
      const size_t end = group == groups_.end() ? c + 1 : std::min(group->last, block.last);
      if (group != groups_.end() && !group->title.empty()) {
        const auto parts = pieces(group->title, std::max(width_of(c, end), kGap.size() + 1) - kGap.size());
        lines.resize(std::max(lines.size(), parts.size()));
        for (size_t i = 0; i < parts.size(); ++i) lines[i] = pad(lines[i], at, true) + parts[i];
      }
      at += width_of(c, end);
      c = end;
    }
    std::string text;
    for (auto& line : lines) text += without_trailing_space(std::move(line));
    return text;
  }
  std::string row_lines(const std::vector<std::string>& row, const Block& block) const {
    const auto names = pieces(row[0], std::max<size_t>(1, width_[0]));
    std::string line = pad(names[0], width_[0], true) + std::string(kGap);
    for (size_t c = 1; c < table_.keys; ++c) line += pad(row[c], width_[c], false) + std::string(kGap);
    for (size_t c = block.first; c < block.last; ++c) line += pad(row[c], width_[c], false) + std::string(kGap);
    std::string text = without_trailing_space(std::move(line));
    for (size_t i = 1; i < names.size(); ++i) text += names[i] + '\n';
    return text;
  }

  const Table& table_;
  const std::vector<ColumnGroup>& groups_;
  std::vector<std::vector<std::string>> texts_;
  std::vector<size_t> width_;
};

}  // namespace

void Table::add(std::vector<std::string> cells) {
  auto& row = rows.emplace_back();
  for (auto& cell : cells) {
    const bool is_number = !cell.empty() && cell.find_first_not_of("0123456789.+-") == cell.npos && cell != "-";
    row.push_back({.text = std::move(cell), .is_number = is_number});
  }
}

std::string text_of(const Table& table) {
  std::string text = table.title.empty() ? "" : wrapped(table.title);
  if (!table.head.empty()) text += TextLayout(table).text();
  return text + (table.note.empty() ? "" : wrapped(table.note));
}

std::string text_of(std::span<const Table> tables) {
  std::string text;
  for (const auto& table : tables) text += concat(text.empty() ? "" : "\n", text_of(table));
  return text;
}

std::string head_with_group(const Table& table, size_t column) {
  for (const auto& group : table.groups)
    if (column >= group.first && column < group.last && !group.title.empty())
      return concat(group.title, ", ", table.head[column]);
  return table.head[column];
}

}  // namespace evenkeel::report
