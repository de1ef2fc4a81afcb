/// \file  Formats cells in columns as plain text. The first column is left-aligned, the others right-aligned.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::report {

inline constexpr size_t kPageWidth = 80;  ///< characters per line, at most

/// Breaks a text at spaces into lines of at most `width` columns; later lines are indented. Longer words stay whole.
std::string wrapped(const std::string& text, size_t width = kPageWidth, size_t indent = 2);
/// Returns the number of columns of UTF-8 text: its bytes without continuation bytes.
size_t columns_of_text(std::string_view text);
/// Splits a name into pieces of at most `width` columns, 1 or more.
std::vector<std::string> pieces(std::string_view name, size_t width);

/// A table of text cells. Columns beyond the page go into a further block below, with the same key columns.
class TextGrid {
 public:
  /// \param keys  number of columns that name a line and stand in each block
  explicit TextGrid(std::vector<std::string> titles, size_t keys = 1) : keys_(keys) { add(std::move(titles)); }
  /// Adds a line. REQUIRES as many cells as titles
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Adds a title above columns [first, last), which stay in one block if they fit on the page.
  void group(size_t first, size_t last, std::string title) { groups_.push_back({first, last, std::move(title)}); }
  /// Returns the formatted table.
  std::string text() const;

 private:
  struct Group {
    size_t first, last;
    std::string title;
  };
  /// Some columns of the table: the keys and [first, last).
  struct Block {
    size_t first, last;
  };
  std::vector<size_t> widths() const;
  std::vector<Block> blocks(const std::vector<size_t>& width) const;
  size_t key_width(const std::vector<size_t>& width) const;
  size_t end_of_group(size_t column) const;
  std::string group_lines(const Block& block, const std::vector<size_t>& width) const;
  std::string row_lines(const std::vector<std::string>& row, const Block& block,
                        const std::vector<size_t>& width) const;

  size_t keys_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<Group> groups_;
};

}  // namespace evenkeel::report
