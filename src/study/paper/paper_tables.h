/// \file  Reads the tables of the UB-SMoE paper as printed (configs/paper/tables.toml). The studies that repeat them
/// are configs/paper/*.toml; small ones on the built-in model are in configs/paper/small/.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel::study {

/// Meaning of the rows of a table. A row "average" is the mean over the others.
enum class PaperRows {
  kTask,    ///< a task, mean over budgets
  kBudget,  ///< a budget, mean over tasks
  kMean,    ///< one row, mean over tasks and budgets
  kStudy,   ///< a study by name, mean over tasks and budgets
};
constexpr auto names(PaperRows) {
  return std::array{
      config::EnumName<PaperRows>{"task", PaperRows::kTask}, config::EnumName<PaperRows>{"budget", PaperRows::kBudget},
      config::EnumName<PaperRows>{"mean", PaperRows::kMean}, config::EnumName<PaperRows>{"study", PaperRows::kStudy}};
}

/// The printed values of a row, one per arm.
struct PaperRow {
  std::string row;
  std::vector<double> paper;
  void visit(auto& field) {
    field("row", row, "task, budget, study, or average");
    field("paper", paper, "one value per arm");
  }
};

/// A remark on a table, or on the cells of a row, an arm or both.
struct PaperNote {
  std::string row, arm, text;
  void visit(auto& field) {
    field("row", row, "empty: all rows");
    field("arm", arm, "empty: all arms");
    field("text", text, "a sentence");
  }
  /// Returns true if the remark marks that cell. A remark on the whole table marks none.
  bool marks(std::string_view of_row, std::string_view of_arm) const;
};

/// A table of the paper.
struct PaperTable {
  std::string id;  ///< "2", "4-equal"
  std::string title;
  std::vector<std::string> studies;  ///< files of configs/paper/ without .toml
  PaperRows rows = PaperRows::kMean;
  std::string measure;            ///< as in study/comparison/measures.h, or as in study/paper/paper_costs.h
  std::string unit;               ///< fraction, percent, count or MiB
  std::string rank_mode;          ///< rank evaluation mode of rank methods, a or b; empty: the only one, or none
  std::optional<double> budget;   ///< the only budget that is used; empty: all
  std::vector<std::string> arms;  ///< the columns
  std::vector<PaperRow> values;
  std::vector<PaperNote> notes;
  void visit(auto& field) {
    field("id", id, "number in the paper");
    field("title", title, "what it shows");
    field("studies", studies, "studies whose runs fill it");
    field("rows", rows, "task, budget, mean or study");
    field("measure", measure, "of a score or of a run's cost");
    field("unit", unit, "fraction, percent, count or MiB");
    field("rank_mode", rank_mode, "rank evaluation mode of rank methods");
    field("budget", budget, "the only budget that counts");
    field("arms", arms, "columns");
    field("values", values, "printed values");
    field("notes", notes, "remarks");
  }
  /// \throws kConfig if a row has not one value per arm
  void resolve(const config::Table& table) const;
};

/// Reads all tables, in the order of the paper. \throws kIo, kConfig when the shipped file is missing or damaged
std::vector<PaperTable> paper_tables();
/// Returns a table. \throws kConfig listing the ids when it is unknown
PaperTable find_paper_table(std::string_view id);

}  // namespace evenkeel::study
