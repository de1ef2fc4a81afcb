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
  kTask,     ///< a task, mean over budgets
  kBudget,   ///< a budget, mean over tasks
  kMean,     ///< one row, mean over tasks and budgets
  kStudy,    ///< a study by name, mean over tasks and budgets
  kMeasure,  ///< a measure or cost of its own, mean over tasks and budgets
};
constexpr auto names(PaperRows) {
  return std::array{
      config::EnumName<PaperRows>{"task", PaperRows::kTask}, config::EnumName<PaperRows>{"budget", PaperRows::kBudget},
      config::EnumName<PaperRows>{"mean", PaperRows::kMean}, config::EnumName<PaperRows>{"study", PaperRows::kStudy},
      config::EnumName<PaperRows>{"measure", PaperRows::kMeasure}};
}

/// Selects what the rows after the paper's rows list: nothing, the layers or the rounds of the runs.
enum class PaperSeries { kNone, kLayer, kRound };
constexpr auto names(PaperSeries) {
  return std::array{config::EnumName<PaperSeries>{"none", PaperSeries::kNone},
                    config::EnumName<PaperSeries>{"layer", PaperSeries::kLayer},
                    config::EnumName<PaperSeries>{"round", PaperSeries::kRound}};
}

/// The printed values of a row.
struct PaperRow {
  std::string row;
  std::vector<double> paper;       ///< one value per arm; empty: none is printed
  std::vector<std::string> of{};   ///< the arms of `paper`; empty: all
  std::string measure{};           ///< empty: the table's measure
  std::optional<double> budget{};  ///< empty: the table's budget
  void visit(auto& field) {
    field("row", row, "task, budget, study, or average; of rows = measure a title");
    field("paper", paper, "one value per arm; empty: none is printed");
    field("of", of, "the arms of `paper`; empty: all");
    field("measure", measure, "of rows = measure; empty: that of the table");
    field("budget", budget, "the only one that counts; empty: that of the table");
  }
};

/// A direction that the paper states without a number of its own.
enum class PaperDirection { kHighest, kLowest, kPositive, kNegative };
constexpr auto names(PaperDirection) {
  return std::array{config::EnumName<PaperDirection>{"highest", PaperDirection::kHighest},
                    config::EnumName<PaperDirection>{"lowest", PaperDirection::kLowest},
                    config::EnumName<PaperDirection>{"positive", PaperDirection::kPositive},
                    config::EnumName<PaperDirection>{"negative", PaperDirection::kNegative}};
}

/// A statement of the paper: the row of an arm is the highest or lowest of all arms, or above or below 0.
struct PaperClaim {
  std::string row, arm;
  PaperDirection is = PaperDirection::kHighest;
  void visit(auto& field) {
    field("row", row, "of the table");
    field("arm", arm, "of the table");
    field("is", is, "highest or lowest of the arms, or positive or negative");
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
  std::string measure;            ///< as in scoring/measures.h, or as in study/paper/paper_costs.h
  std::string unit;               ///< fraction, percent, count, MiB or number
  std::string rank_mode;          ///< rank evaluation mode of rank methods, a or b; empty: no arm has two modes
  std::optional<double> budget;   ///< the only budget that counts; empty: all budgets
  std::vector<std::string> arms;  ///< the columns
  std::vector<PaperRow> values;
  PaperSeries series = PaperSeries::kNone;
  std::vector<PaperClaim> claims;
  std::vector<PaperNote> notes;
  bool cost_by_k = false;  ///< FLOPs and measured seconds at every K follow
  void visit(auto& field) {
    field("id", id, "number in the paper");
    field("title", title, "what it shows");
    field("studies", studies, "studies whose runs fill it");
    field("rows", rows, "task, budget, mean, study or measure");
    field("measure", measure, "of a score or of a run's cost");
    field("unit", unit, "fraction, percent, count, MiB or number");
    field("rank_mode", rank_mode, "rank evaluation mode of rank methods");
    field("budget", budget, "the only budget that counts");
    field("arms", arms, "columns");
    field("values", values, "printed values");
    field("series", series, "none, layer or round: rows of the studies that follow, with the table's measure");
    field("claims", claims, "directions that the paper states");
    field("notes", notes, "remarks");
    field("cost_by_k", cost_by_k, "true: FLOPs and measured seconds by experts per token follow");
  }
  /// Returns the printed value of an arm, if there is one.
  std::optional<double> printed(const PaperRow& row, const std::string& arm) const;
  /// \throws kConfig if a row with values has not one per arm, or a claim names an unknown row or arm
  void resolve(const config::Table& table) const;
};

/// Reads all tables, in the order of the paper. \throws kIo, kConfig when the shipped file is missing or damaged
std::vector<PaperTable> paper_tables();
/// Returns a table. \throws kConfig listing the ids when it is unknown
PaperTable find_paper_table(std::string_view id);

}  // namespace evenkeel::study
