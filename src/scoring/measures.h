/// \file  Lists the measures of a task's score. Tables, charts, comparisons and logs read this one list.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scoring/task_score.h"

namespace evenkeel::scoring {

/// A measure of a task's score. Shares are printed in percent.
struct Measure {
  std::string_view name;   ///< as in evaluations.jsonl, for example "log_likelihood"
  std::string_view title;  ///< for tables, with its unit
  bool higher_is_better = true;
  bool is_share = true;
  /// Returns the measure, or nothing if the kind of the task or an older record does not have it.
  std::optional<double> (*of)(const TaskScore&);
  /// Returns the values of single rows; their mean is the measure. Null: values of single rows are not recorded.
  std::vector<double> (*items)(const ItemScores&) = nullptr;
};

/// Returns all measures. The first is the default of `study.endpoint`, the measure by which arms are compared.
std::span<const Measure> measures();
/// Returns a measure. \throws kConfig listing the names when it is unknown
const Measure& find_measure(std::string_view name);
/// Returns the measures that at least one of the scores has.
std::vector<std::string_view> measures_in(std::span<const TaskScore> scores);

/// Returns the distinct values of a member among `scores`, in order of appearance.
template <typename T>
std::vector<T> distinct(std::span<const TaskScore> scores, T TaskScore::*member) {
  std::vector<T> values;
  for (const auto& score : scores)
    if (std::find(values.begin(), values.end(), score.*member) == values.end()) values.push_back(score.*member);
  return values;
}

}  // namespace evenkeel::scoring
