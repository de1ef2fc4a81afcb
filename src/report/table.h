/// \file  Defines a table of a report, and formats it as plain text, Markdown or LaTeX.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "report/text_lines.h"

namespace evenkeel::report {

/// A cell. Plain text and Markdown show it as "TEXT INTERVAL".
struct Cell {
  std::string text;
  std::string interval{};  ///< LaTeX shows it in a smaller size
  /// Set by the caller for the best cell of a comparison. The cell is shown in bold, in plain text with an asterisk.
  bool best = false;
  bool is_number = true;  ///< LaTeX shows text and interval in math mode, not escaped
};

/// A title above the columns [first, last), which stay together where they fit on the page.
struct ColumnGroup {
  size_t first, last;
  std::string title;
};

/// A table. Every row has as many cells as the head. A table without a head is a remark: its title and note alone.
struct Table {
  std::string title{};
  std::vector<std::string> head{};
  std::vector<std::vector<Cell>> rows{};
  std::string note{};  ///< below the table; may be empty
  size_t keys = 1;     ///< number of leading columns that name a row; repeated where the table is divided
  std::vector<ColumnGroup> groups{};

  /// Adds a row of plain cells. REQUIRES as many cells as the head
  void add(std::vector<std::string> cells);
};

/// Formats a table with lines of at most 80 columns. The first column is left-aligned, the others right-aligned; long
/// names in the first column are wrapped. Columns that do not fit are shown in a further block below.
std::string text_of(const Table& table);
std::string markdown_of(const Table& table);
/// Formats table environments in booktabs style, for a page 345 pt wide (article, 10 pt). Wide tables have a smaller
/// font; what does not fit then, and rows beyond 36, go into further tables. Text is escaped.
std::string latex_of(const Table& table);
/// Formats tables one below the other, with an empty line between them.
std::string text_of(std::span<const Table> tables);

/// Returns the head of a column with the title of its group: "demo, 0.125".
std::string head_with_group(const Table& table, size_t column);
/// Escapes a text for LaTeX, with "+-" as the plus-minus sign.
std::string latex_text(const std::string& text);
/// Escapes a paragraph for LaTeX. Names may break after an underscore.
std::string latex_prose(const std::string& text);

}  // namespace evenkeel::report
