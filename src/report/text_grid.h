/// \file  Formats cells in columns as plain text. The first column is left-aligned, the others right-aligned.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace evenkeel::report {

inline constexpr size_t kPageWidth = 120;  ///< characters per line of a table, at most

/// A table of text cells.
class TextGrid {
 public:
  explicit TextGrid(std::vector<std::string> titles) { add(std::move(titles)); }
  /// Adds a line. REQUIRES as many cells as titles
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Adds a title above columns [first, last).
  void group(size_t first, size_t last, std::string title) { groups_.push_back({first, last, std::move(title)}); }
  /// Returns the formatted table.
  std::string text() const;

 private:
  struct Group {
    size_t first, last;
    std::string title;
  };
  std::vector<size_t> widths() const;

  std::vector<std::vector<std::string>> rows_;
  std::vector<Group> groups_;
};

/// Formats `value` with `decimals` digits after the decimal point.
std::string fixed(double value, int decimals);
/// Formats `value` with four significant digits and a suffix k, M, G, T or P: "1.234 G".
std::string compact(double value);

}  // namespace evenkeel::report
