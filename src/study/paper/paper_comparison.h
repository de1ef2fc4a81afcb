/// \file  Compares the results of studies with a table of the paper.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comparison/compared_runs.h"
#include "comparison/statistics.h"
#include "report/table.h"
#include "study/paper/paper_tables.h"

namespace evenkeel::study {

/// A printed value of the paper, and the values of our runs.
struct PaperCell {
  std::optional<double> paper;        ///< empty: the paper has no such row
  std::map<int64_t, double> by_seed;  ///< of the seeds with a value; empty: no study has the row
  bool marked = false;                ///< a note of the table refers to this cell
  std::string mode{};                 ///< rank evaluation mode of the values; empty: the method has none

  std::optional<double> mean() const;                    ///< nothing if no seed has a value
  std::optional<comparison::Interval> interval() const;  ///< 95 %, by t over seeds
  int64_t seeds() const;                                 ///< number of seeds with a value
};

/// A row with one cell per arm.
struct PaperResult {
  std::string row;
  std::vector<PaperCell> cells;
  /// Per arm: the values in the rank evaluation mode that is not the table's; empty if no run was scored in it.
  std::vector<std::optional<PaperCell>> other_mode{};
  bool counted = false;  ///< the values are of a cost that is_counted() (study/paper/paper_costs.h)
};

/// Counts the pairs of arms in a row whose order agrees with the paper.
struct OrderAgreement {
  int64_t pairs = 0;         ///< pairs of arms with different printed values and with runs of a common seed
  int64_t agree = 0;         ///< pairs whose means are in the paper's order
  int64_t shown = 0;         ///< pairs among `agree` whose 95 % interval of the paired difference excludes zero
  int64_t contradicted = 0;  ///< pairs in the other order whose interval excludes zero
  bool confirmed() const { return pairs > 0 && shown == pairs; }
};

/// Fills a table from studies. The values of an arm come from the first study that has the arm and the row. Rows that
/// only the studies have (other tasks, layers, rounds) follow the paper's rows.
/// \throws kConfig if no study has any of the table's arms
std::vector<PaperResult> paper_results(const PaperTable& table, std::span<const comparison::StudyRuns> studies);

/// Compares the order of the arms in a row. Differences that are equal in all seeds have an interval only if the values
/// are counted, since counts have no sampling error.
OrderAgreement order_agreement(const PaperResult& result);

/// Formats the paper's values and the runs' values side by side, with the interval, the number of seeds and a mark on
/// cells with a note. A rank method has a line for each rank evaluation mode in which its runs were scored; the note
/// says which mode is the table's.
report::Table paper_report(const PaperTable& table, std::span<const PaperResult> results);
/// Returns sentences about the table. The first ones compare the order of the arms in the row "average", or if there is
/// none, in each row with several printed values: one for the table's rank evaluation mode, one for the other mode if
/// it has scores. Then follow the claims and the notes of the table, one sentence each.
std::vector<std::string> paper_sentences(const PaperTable& table, std::span<const PaperResult> results);

}  // namespace evenkeel::study
