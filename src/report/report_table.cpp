#include "report/report_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <sstream>
#include <string_view>

#include "base/plain/error.h"

namespace evenkeel::report {
namespace {

constexpr size_t kLeastNameWidth = 12, kColumnGap = 2;

std::string plain_text(const Cell& cell) {
  return cell.interval.empty() ? cell.text : concat(cell.text, ' ', cell.interval);
}

/// Returns true if the best cells of a column are marked.
bool has_best(const ReportTable& table, size_t column) {
  return std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return row[column].best; });
}

std::string marked_text(const Cell& cell, bool marks) {
  return plain_text(cell) + (marks ? cell.best ? "*" : " " : "");
}

size_t column_width(const ReportTable& table, size_t column) {
  size_t width = columns_of_text(table.head[column]);
  const bool marks = has_best(table, column);
  for (const auto& row : table.rows) width = std::max(width, columns_of_text(marked_text(row[column], marks)));
  return width;
}

/// Formats the first column and the columns [from, to) of the table.
std::string text_part(const ReportTable& table, size_t from, size_t to, size_t name_width) {
  std::vector<std::string> head{table.head[0]};
  head.insert(head.end(), table.head.begin() + from, table.head.begin() + to);
  TextGrid grid(head);
  for (const auto& row : table.rows) {
    auto names = pieces(plain_text(row[0]), name_width);
    std::vector<std::string> cells{names[0]};
    for (size_t c = from; c < to; ++c) cells.push_back(marked_text(row[c], has_best(table, c)));
    grid.add(cells);
    for (size_t i = 1; i < names.size(); ++i) {
      std::vector<std::string> rest(cells.size());
      rest[0] = names[i];
      grid.add(rest);
    }
  }
  return grid.text();
}

/// Returns the end of the columns that fit next to the first one; at least one more.
size_t columns_that_fit(const ReportTable& table, size_t from, size_t name_width) {
  size_t used = name_width, to = from;
  while (to < table.head.size()) {
    used += kColumnGap + column_width(table, to);
    if (used > kPageWidth && to > from) break;
    ++to;
  }
  return to;
}

/// Returns the width of the column of names: of the longest name, or what the other columns leave.
size_t width_of_names(const ReportTable& table) {
  size_t others = 0;
  for (size_t c = 1; c < table.head.size(); ++c) others += kColumnGap + column_width(table, c);
  const size_t left = kPageWidth - std::min(kPageWidth, others);
  return std::min(column_width(table, 0), std::max(left, kLeastNameWidth));
}

std::string markdown_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return escaped;
}

std::string markdown_cell(const Cell& cell) {
  const auto text = markdown_text(cell.text);
  const auto marked = cell.best ? concat("**", text, "**") : text;
  return cell.interval.empty() ? marked : concat(marked, ' ', cell.interval);
}

/// A font size of LaTeX. Widths are in pt, for a document of 10 pt.
struct LatexSize {
  std::string_view name;      ///< empty: the size of the text
  std::string_view interval;  ///< the next smaller one
  double character, gap;      ///< of a digit, and on each side of a column
};
constexpr std::array kLatexSizes{LatexSize{"", "\\footnotesize", 5.0, 6}, LatexSize{"\\small", "\\scriptsize", 4.65, 4},
                                 LatexSize{"\\footnotesize", "\\scriptsize", 4.3, 3},
                                 LatexSize{"\\scriptsize", "\\tiny", 4.0, 2}};
constexpr double kLatexPage = 338, kIntervalScale = 0.85, kMathScale = 1.05;
constexpr size_t kLatexRows = 36;  // that fit on a page

std::string latex_interval(const std::string& interval) {
  return interval.starts_with("+-") ? concat("\\pm ", interval.substr(2)) : interval;
}

std::string latex_cell(const Cell& cell, const LatexSize& size) {
  if (cell.text == "-") return "--";
  if (!cell.is_number) return cell.best ? concat("\\textbf{", latex_text(cell.text), "}") : latex_text(cell.text);
  const auto number = cell.best ? concat("$\\mathbf{", cell.text, "}$") : concat("$", cell.text, "$");
  return cell.interval.empty() ? number
                               : concat(number, " {", size.interval, " $", latex_interval(cell.interval), "$}");
}

/// Returns the width of a column in digits.
double latex_width(const ReportTable& table, size_t column) {
  auto width = static_cast<double>(columns_of_text(table.head[column]));
  for (const auto& row : table.rows) {
    const auto& [text, interval, best, is_number] = row[column];
    const double gap = interval.empty() ? 0 : 1;
    width = std::max(width, (is_number ? kMathScale : 1) * static_cast<double>(columns_of_text(text)) + gap +
                                kIntervalScale * kMathScale * static_cast<double>(columns_of_text(interval)));
  }
  return width;
}

/// Returns the end of the columns that fit on a page next to the first one; at least one more.
size_t latex_columns_that_fit(const ReportTable& table, size_t from, const LatexSize& size) {
  double used = latex_width(table, 0) * size.character + 2 * size.gap;
  size_t to = from;
  for (; to < table.head.size(); ++to) {
    used += latex_width(table, to) * size.character + 2 * size.gap;
    if (used > kLatexPage && to > from) break;
  }
  return to;
}

/// Returns the largest size at which the table fits on a page; the smallest one if none does.
const LatexSize& latex_size(const ReportTable& table) {
  const auto fits = [&](const LatexSize& size) { return latex_columns_that_fit(table, 1, size) == table.head.size(); };
  const auto* found = std::find_if(kLatexSizes.begin(), kLatexSizes.end(), fits);
  return found == kLatexSizes.end() ? kLatexSizes.back() : *found;
}

/// Returns "l" for a column of text and "r" for one of numbers.
char latex_alignment(const ReportTable& table, size_t column) {
  const bool numbers =
      std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return row[column].is_number; });
  return column > 0 && numbers ? 'r' : 'l';
}

/// Part of a table: rows [first, last), and the columns [from, to) behind the first one.
struct LatexPart {
  size_t first, last, from, to;
};

std::vector<LatexPart> latex_parts(const ReportTable& table, const LatexSize& size) {
  std::vector<LatexPart> parts;
  for (size_t first = 0; first == 0 || first < table.rows.size(); first += kLatexRows)
    for (size_t from = 1; from < table.head.size();) {
      const size_t to = latex_columns_that_fit(table, from, size);
      parts.push_back({first, std::min(first + kLatexRows, table.rows.size()), from, to});
      from = to;
    }
  return parts;
}

/// Formats a line of the table. \param cell  formats the cell of a column
std::string latex_line(const LatexPart& part, const std::function<std::string(size_t column)>& cell) {
  std::string line = cell(0);
  for (size_t column = part.from; column < part.to; ++column) line += concat(" & ", cell(column));
  return line + " \\\\\n";
}

std::string latex_body(const ReportTable& table, const LatexPart& part, const LatexSize& size) {
  const bool has_groups =
      std::any_of(table.rows.begin(), table.rows.end(), [](const auto& row) { return row[0].text.empty(); });
  std::string text = latex_line(part, [&](size_t column) { return latex_text(table.head[column]); }) + "\\midrule\n";
  for (size_t i = part.first; i < part.last; ++i) {
    const auto& row = table.rows[i];
    if (has_groups && i > part.first && !row[0].text.empty()) text += "\\addlinespace\n";
    text += latex_line(part, [&](size_t column) { return latex_cell(row[column], size); });
  }
  return text;
}

/// Formats one table environment. \param number  of the part, from 1; 0: the table is whole
std::string latex_part(const ReportTable& table, const LatexPart& part, const LatexSize& size, size_t number) {
  auto title = number > 0 ? concat(table.title, " (part ", number, ")") : table.title;
  if (!title.empty()) title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
  std::string columns(1, latex_alignment(table, 0));
  for (size_t column = part.from; column < part.to; ++column) columns += latex_alignment(table, column);
  const auto font =
      size.name.empty() ? std::string() : concat(size.name, "\\setlength{\\tabcolsep}{", size.gap, "pt}\n");
  std::string text =
      concat("\\begin{table}[htbp]\n\\centering\n\\caption{", latex_text(title), "}\n", font, "\\begin{tabular}{",
             columns, "}\n\\toprule\n", latex_body(table, part, size), "\\bottomrule\n\\end{tabular}\n");
  if (!table.note.empty()) text += concat("\n\\smallskip\n{\\footnotesize ", latex_prose(table.note), "}\n");
  return text + "\\end{table}\n";
}

}  // namespace

std::string text_of(const ReportTable& table) {
  std::string text = wrapped(table.title);
  const size_t name_width = width_of_names(table);
  for (size_t from = 1; from < table.head.size();) {
    const size_t to = columns_that_fit(table, from, name_width);
    text += text_part(table, from, to, name_width);
    from = to;
  }
  return text + (table.note.empty() ? "" : wrapped(table.note));
}

std::string markdown_of(const ReportTable& table) {
  std::string text = concat("**", table.title, "**\n\n|"), rule = "|";
  for (size_t c = 0; c < table.head.size(); ++c) {
    text += concat(' ', markdown_text(table.head[c]), " |");
    rule += c == 0 ? " --- |" : " ---: |";
  }
  text += concat('\n', rule, '\n');
  for (const auto& row : table.rows) {
    text += '|';
    for (const auto& cell : row) text += concat(' ', markdown_cell(cell), " |");
    text += '\n';
  }
  return text + (table.note.empty() ? "" : concat('\n', table.note, '\n'));
}

std::string latex_of(const ReportTable& table) {
  const auto& size = latex_size(table);
  const auto parts = latex_parts(table, size);
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i)
    text += concat(i > 0 ? "\n" : "", latex_part(table, parts[i], size, parts.size() > 1 ? i + 1 : 0));
  return text;
}

std::string latex_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\textbackslash{}";
    else if (c == '<' || c == '>' || c == '|')
      escaped += concat('$', c, '$');
    else if (c == '^' || c == '~')
      escaped += concat('\\', c, "{}");
    else if (std::string_view("&%$#_{}").find(c) != std::string_view::npos)
      escaped += concat('\\', c);
    else
      escaped += c;
  }
  for (size_t at = 0; (at = escaped.find("+-", at)) != escaped.npos;) escaped.replace(at, 2, "$\\pm$");
  return escaped;
}

std::string latex_prose(const std::string& text) {
  constexpr std::string_view kUnderscore = "\\_", kBreak = "\\allowbreak{}";
  auto escaped = latex_text(text);
  for (size_t at = 0; (at = escaped.find(kUnderscore, at)) != escaped.npos; at += kBreak.size())
    escaped.insert(at += kUnderscore.size(), kBreak);
  return escaped;
}

}  // namespace evenkeel::report
