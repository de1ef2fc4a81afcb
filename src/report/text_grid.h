/// \file  Cells in columns as plain text: the first column to the left, the others to the right.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace evenkeel {

inline constexpr size_t kPageWidth = 120;  ///< characters that a line of a table may have

class TextGrid {
 public:
  explicit TextGrid(std::vector<std::string> titles) { add(std::move(titles)); }
  /// REQUIRES as many cells as titles.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// A title over columns [first, last).
  void group(size_t first, size_t last, std::string title) { groups_.push_back({first, last, std::move(title)}); }
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

/// `value` with `decimals` digits behind the point.
std::string fixed(double value, int decimals);
/// Four significant digits with k, M, G, T, P: "1.234 G".
std::string compact(double value);

}  // namespace evenkeel
