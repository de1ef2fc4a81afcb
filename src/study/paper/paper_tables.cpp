#include "study/paper/paper_tables.h"

#include <algorithm>

#include "base/plain/files.h"

namespace evenkeel::study {
namespace {

struct TableFile {
  std::vector<PaperTable> tables;
  void visit(auto& field) { field("table", tables, "a table of the paper"); }
};

}  // namespace

bool PaperNote::marks(std::string_view of_row, std::string_view of_arm) const {
  if (row.empty() && arm.empty()) return false;
  return (row.empty() || row == of_row) && (arm.empty() || arm == of_arm);
}

void PaperTable::resolve(const config::Table& table) const {
  for (const auto& entry : values) {
    const size_t wanted = entry.of.empty() ? arms.size() : entry.of.size();
    table.check(entry.paper.empty() || entry.paper.size() == wanted, "values", entry.paper.size(),
                concat(wanted, " values of row ", entry.row, ", one per arm"));
  }
  for (const auto& claim : claims) {
    const auto is_it = [&](const PaperRow& entry) { return entry.row == claim.row; };
    table.check(std::any_of(values.begin(), values.end(), is_it), "claims", claim.row, "a row of the table");
    table.check(std::find(arms.begin(), arms.end(), claim.arm) != arms.end(), "claims", claim.arm,
                "an arm of the table");
  }
}

std::optional<double> PaperTable::printed(const PaperRow& row, const std::string& arm) const {
  const auto& columns = row.of.empty() ? arms : row.of;
  const auto at = static_cast<size_t>(std::find(columns.begin(), columns.end(), arm) - columns.begin());
  return at < row.paper.size() ? std::optional(row.paper[at]) : std::nullopt;
}

std::vector<PaperTable> paper_tables() {
  return config::read<TableFile>(config::Table::load(shipped_folder() / "configs/paper/tables.toml")).tables;
}

PaperTable find_paper_table(std::string_view id) {
  const auto tables = paper_tables();
  const auto found =
      std::find_if(tables.begin(), tables.end(), [&](const PaperTable& table) { return table.id == id; });
  if (found != tables.end()) return *found;
  std::vector<std::string> ids;
  for (const auto& table : tables) ids.push_back(concat("paper:", table.id));
  fail(kConfig, "--table is \"paper:", id, "\", allowed: ", join(ids));
}

}  // namespace evenkeel::study
