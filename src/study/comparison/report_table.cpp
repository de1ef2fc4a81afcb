#include "study/comparison/report_table.h"

#include <algorithm>
#include <sstream>

#include "base/plain/error.h"
#include "report/text_grid.h"

namespace evenkeel::study {
namespace {

constexpr size_t kLeastNameWidth = 12, kColumnGap = 2;

/// Returns the number of columns of UTF-8 text: its bytes without continuation bytes.
size_t columns_of_text(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

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

bool is_inside_character(const std::string& text, size_t at) { return at < text.size() && (text[at] & 0xC0) == 0x80; }

/// Splits a name into pieces of at most `width` bytes, between characters.
std::vector<std::string> pieces(std::string name, size_t width) {
  std::vector<std::string> all;
  while (name.size() > width) {
    size_t cut = width;
    while (cut > 1 && is_inside_character(name, cut)) --cut;
    all.push_back(name.substr(0, cut));
    name.erase(0, cut);
  }
  all.push_back(std::move(name));
  return all;
}

/// Formats the first column and the columns [from, to) of the table.
std::string text_part(const ReportTable& table, size_t from, size_t to, size_t name_width) {
  std::vector<std::string> head{table.head[0]};
  head.insert(head.end(), table.head.begin() + from, table.head.begin() + to);
  report::TextGrid grid(head);
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
    if (used > kTerminalWidth && to > from) break;
    ++to;
  }
  return to;
}

/// Returns the width of the column of names: of the longest name, or what the other columns leave.
size_t width_of_names(const ReportTable& table) {
  size_t others = 0;
  for (size_t c = 1; c < table.head.size(); ++c) others += kColumnGap + column_width(table, c);
  const size_t left = kTerminalWidth - std::min(kTerminalWidth, others);
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

std::string latex_cell(const Cell& cell) {
  if (cell.text == "-") return "--";
  if (!cell.is_number) return cell.best ? concat("\\textbf{", latex_text(cell.text), "}") : latex_text(cell.text);
  const auto number = cell.best ? concat("$\\mathbf{", cell.text, "}$") : concat("$", cell.text, "$");
  return cell.interval.empty() ? number : concat(number, " {\\footnotesize $", cell.interval, "$}");
}

}  // namespace

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
  std::string text = concat("\\begin{table}[htbp]\n\\centering\n\\caption{", latex_text(table.title),
                            "}\n\\begin{tabular}{l", std::string(table.head.size() - 1, 'r'), "}\n\\toprule\n");
  for (size_t c = 0; c < table.head.size(); ++c) text += concat(c > 0 ? " & " : "", latex_text(table.head[c]));
  text += " \\\\\n\\midrule\n";
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size(); ++c) text += concat(c > 0 ? " & " : "", latex_cell(row[c]));
    text += " \\\\\n";
  }
  text += "\\bottomrule\n\\end{tabular}\n";
  if (!table.note.empty()) text += concat("\n\\smallskip\n{\\footnotesize ", latex_text(table.note), "}\n");
  return text + "\\end{table}\n";
}

std::string latex_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\textbackslash{}";
    else if (c == '^' || c == '~')
      escaped += concat('\\', c, "{}");
    else if (std::string_view("&%$#_{}").find(c) != std::string_view::npos)
      escaped += concat('\\', c);
    else
      escaped += c;
  }
  return escaped;
}

}  // namespace evenkeel::study
