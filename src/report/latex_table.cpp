#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <string_view>

#include "base/plain/error.h"
#include "report/table.h"

namespace evenkeel::report {
namespace {

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
double latex_width(const Table& table, size_t column) {
  auto width = static_cast<double>(columns_of_text(head_with_group(table, column)));
  for (const auto& row : table.rows) {
    const auto& [text, interval, best, is_number] = row[column];
    const double gap = interval.empty() ? 0 : 1;
    width = std::max(width, (is_number ? kMathScale : 1) * static_cast<double>(columns_of_text(text)) + gap +
                                kIntervalScale * kMathScale * static_cast<double>(columns_of_text(interval)));
  }
  return width;
}

/// Returns the end of the columns that fit on a page next to the keys; at least one more.
size_t latex_columns_that_fit(const Table& table, size_t from, const LatexSize& size) {
  double used = 0;
  for (size_t key = 0; key < table.keys; ++key) used += latex_width(table, key) * size.character + 2 * size.gap;
  size_t to = from;
  for (; to < table.head.size(); ++to) {
    used += latex_width(table, to) * size.character + 2 * size.gap;
    if (used > kLatexPage && to > from) break;
  }
  return to;
}

/// Returns the largest size at which the table fits on a page; the smallest one if none does.
const LatexSize& latex_size(const Table& table) {
  const auto fits = [&](const LatexSize& size) {
    return latex_columns_that_fit(table, table.keys, size) == table.head.size();
  };
  const auto* found = std::find_if(kLatexSizes.begin(), kLatexSizes.end(), fits);
  return found == kLatexSizes.end() ? kLatexSizes.back() : *found;
}

/// Returns "l" for a column of text and "r" for one of numbers.
char latex_alignment(const Table& table, size_t column) {
  const bool numbers =
      std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return row[column].is_number; });
  return column > 0 && numbers ? 'r' : 'l';
}

/// Part of a table: rows [first, last), and the columns [from, to) behind the keys.
struct LatexPart {
  size_t first, last, from, to;
};

std::vector<LatexPart> latex_parts(const Table& table, const LatexSize& size) {
  std::vector<LatexPart> parts;
  for (size_t first = 0; first == 0 || first < table.rows.size(); first += kLatexRows)
    for (size_t from = table.keys; from < table.head.size();) {
      const size_t to = latex_columns_that_fit(table, from, size);
      parts.push_back({first, std::min(first + kLatexRows, table.rows.size()), from, to});
      from = to;
    }
  return parts;
}

/// Formats a line of the table. \param cell  formats the cell of a column
std::string latex_line(const Table& table, const LatexPart& part,
                       const std::function<std::string(size_t column)>& cell) {
  std::string line = cell(0);
  for (size_t key = 1; key < table.keys; ++key) line += concat(" & ", cell(key));
  for (size_t column = part.from; column < part.to; ++column) line += concat(" & ", cell(column));
  return line + " \\\\\n";
}

std::string latex_body(const Table& table, const LatexPart& part, const LatexSize& size) {
  const bool has_groups =
      std::any_of(table.rows.begin(), table.rows.end(), [](const auto& row) { return row[0].text.empty(); });
  std::string text = latex_line(table, part, [&](size_t column) { return latex_text(head_with_group(table, column)); });
  text += "\\midrule\n";
  for (size_t i = part.first; i < part.last; ++i) {
    const auto& row = table.rows[i];
    if (has_groups && i > part.first && !row[0].text.empty()) text += "\\addlinespace\n";
    text += latex_line(table, part, [&](size_t column) { return latex_cell(row[column], size); });
  }
  return text;
}

/// Formats one table environment. \param number  of the part, from 1; 0: the table is whole
std::string latex_part(const Table& table, const LatexPart& part, const LatexSize& size, size_t number) {
  auto title = number > 0 ? concat(table.title, " (part ", number, ")") : table.title;
  if (!title.empty()) title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
  std::string columns;
  for (size_t key = 0; key < table.keys; ++key) columns += latex_alignment(table, key);
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

std::string latex_of(const Table& table) {
  if (table.head.empty()) return latex_prose(table.title) + "\n\n" + latex_prose(table.note) + '\n';
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
