/// \file  Defines a table of a report, and formats it as plain text, Markdown or LaTeX.
#pragma once

#include <string>
#include <vector>

#include "report/text_grid.h"

namespace evenkeel::report {

/// A cell. Plain text and Markdown show it as "TEXT INTERVAL".
struct Cell {
  std::string text;
  std::string interval{};  ///< LaTeX shows it in a smaller size
  /// Set by the caller for the best cell of a comparison. The cell is shown in bold, in plain text with an asterisk.
  bool best = false;
  bool is_number = true;  ///< LaTeX shows text and interval in math mode, not escaped
};

/// A table of two columns or more. Every row has as many cells as the head.
struct ReportTable {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<Cell>> rows;
  std::string note{};  ///< below the table; may be empty
};

/// Formats a table with lines of at most 80 columns. Long names in the first column are wrapped. Columns that do not
/// fit are shown in a further table.
std::string text_of(const ReportTable& table);
std::string markdown_of(const ReportTable& table);
/// Formats table environments in booktabs style, for a page 345 pt wide (article, 10 pt). Wide tables have a smaller
/// font; what does not fit then, and rows beyond 36, go into further tables. Text is escaped.
std::string latex_of(const ReportTable& table);
/// Escapes a text for LaTeX, with "+-" as the plus-minus sign.
std::string latex_text(const std::string& text);
/// Escapes a paragraph for LaTeX. Names may break after an underscore.
std::string latex_prose(const std::string& text);

}  // namespace evenkeel::report
