/// \file  Lists the measures of a score that a study can compare, and the costs of a run.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/run_records.h"

namespace evenkeel::study {

/// A measure of a task's score. Shares are printed in percent.
struct Measure {
  std::string_view name;   ///< as in evaluations.jsonl, for example "log_likelihood"
  std::string_view title;  ///< for tables, with its unit
  bool higher_is_better = true;
  bool is_share = true;
  /// Returns the measure, or nothing if the kind of the task or an older record does not have it.
  std::optional<double> (*of)(const scoring::TaskScore&);
  /// Returns the values of single rows; their mean is the measure. Null: values of single rows are not recorded.
  std::vector<double> (*items)(const scoring::ItemScores&) = nullptr;
};

/// Returns all measures. The first is the default of `study.endpoint`, the measure by which arms are compared.
std::span<const Measure> measures();
/// Returns a measure. \throws kConfig listing the names when it is unknown
const Measure& find_measure(std::string_view name);
/// Returns the measures that at least one of the scores has.
std::vector<std::string_view> measures_in(std::span<const scoring::TaskScore> scores);

/// Costs of all rounds of a run, from rounds.jsonl.
struct Cost {
  double bytes_up = 0, bytes_down = 0;  ///< of all clients and rounds
  double flops = 0;                     ///< of training, all rounds
  double tokens = 0;                    ///< of training, all rounds
  double seconds = 0;                   ///< measured, of all rounds, without evaluations
  std::optional<double> simulated;      ///< seconds at the end of the last round; set if clients have machine profiles
};
Cost cost_of(const report::RunRecords& run);

/// A cost by name.
struct CostMeasure {
  std::string_view name, title;
  std::optional<double> (*of)(const Cost&);
};
/// Returns the costs in the order of tables.
std::span<const CostMeasure> cost_measures();

}  // namespace evenkeel::study
