#include "flower/federation/rows_error.h"

#include <filesystem>
#include <string_view>

namespace evenkeel::flower {
namespace {

constexpr std::string_view kDigits = "0123456789", kSeeLog = "; the node's log says why";

/// Returns the digits with which `text` begins.
std::string_view number_at(std::string_view text) { return text.substr(0, text.find_first_not_of(kDigits)); }

/// Returns ":17" or ": row 17" if `text` begins with it, otherwise nothing.
std::string_view row_at(std::string_view text) {
  for (const std::string_view before : {": row ", ":"}) {
    if (!text.starts_with(before)) continue;
    const auto number = number_at(text.substr(before.size()));
    if (!number.empty()) return text.substr(0, before.size() + number.size());
  }
  return {};
}

/// Returns the file of rows and the row that `text` names: "a.jsonl:17", "a.json: row 17", "a.jsonl". Empty if it names
/// no file.
std::string place_in_files(std::string_view text, std::span<const std::string> files) {
  for (const auto& file : files) {
    const auto name = std::filesystem::path(file).filename().string();
    const auto at = text.find(name);
    if (!name.empty() && at != text.npos) return concat(name, row_at(text.substr(at + name.size())));
  }
  return {};
}

/// Returns "row 17" if `text` names a row by its number, otherwise nothing.
std::string row_in(std::string_view text) {
  constexpr std::string_view kRow = "row ";
  const auto at = text.find(kRow);
  const auto number = at == text.npos ? std::string_view() : number_at(text.substr(at + kRow.size()));
  return number.empty() ? std::string() : concat(kRow, number);
}

/// Values of rows are quoted in messages, and come after the place of the row.
std::string told(const Error& error, std::span<const std::string> files) {
  std::string_view text = error.what();
  text = text.substr(0, text.find('"'));
  const auto file = place_in_files(text, files);
  const auto place = file.empty() ? row_in(text) : file;
  return concat("[", to_string(error.kind()), "] ", place.empty() ? "the node's own rows" : place,
                place.empty() ? " cannot be used" : ": this row or file cannot be used", kSeeLog);
}

}  // namespace

RowsError::RowsError(const Error& error, std::span<const std::string> files)
    : Error(error), for_server_(told(error, files)) {}

std::string reason_for_server(const Error& error) {
  if (const auto* of_rows = dynamic_cast<const RowsError*>(&error)) return of_rows->for_server();
  if (error.kind() == kInternal) return concat("[internal] a defect of the node's program", kSeeLog);
  return error.what();
}

}  // namespace evenkeel::flower
