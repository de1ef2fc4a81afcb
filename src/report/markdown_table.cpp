#include "base/plain/error.h"
#include "base/plain/text.h"
#include "report/table.h"

namespace evenkeel::report {
namespace {

/// Returns a text that stays within its cell.
std::string in_cell(const std::string& text) {
  std::string all;
  for (const char c : escaped(text)) all += c == '|' ? "\\|" : std::string(1, c);
  return all;
}

std::string markdown_cell(const Cell& cell) {
  const auto text = in_cell(cell.text);
  const auto marked = cell.best ? concat("**", text, "**") : text;
  return cell.interval.empty() ? marked : concat(marked, ' ', cell.interval);
}

}  // namespace

std::string markdown_of(const Table& table) {
  if (table.head.empty()) return concat(table.title, '\n', table.note.empty() ? "" : concat('\n', table.note, '\n'));
  std::string text = concat("**", table.title, "**\n\n|"), rule = "|";
  for (size_t c = 0; c < table.head.size(); ++c) {
    text += concat(' ', in_cell(head_with_group(table, c)), " |");
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

}  // namespace evenkeel::report
