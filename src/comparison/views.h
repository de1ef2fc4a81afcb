/// \file  Compares arms by every measure of their scores, for each task and for the mean over tasks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comparison/comparison.h"

namespace evenkeel::comparison {

/// A comparison by one measure, of one task or of the mean over the tasks that have the measure.
struct View {
  std::string task;       ///< empty: mean over tasks
  Comparison comparison;  ///< without bootstrap and without other measures
  /// Accuracy of random answers and of always giving the most frequent answer, means over the tasks with choices; empty
  /// without such tasks, or if the measure is no share or lower is better.
  std::optional<double> chance{}, majority{};
};

/// Returns the views in the order of measures(); for each measure first the mean over tasks, then every task. With one
/// task there is the mean alone. Returns nothing if no run has scores.
std::vector<View> views_of(const StudyRuns& study, const ScoreLookup& scores);

/// Return the mean over budgets of an arm, and of its differences to the reference. A seed counts if it is complete at
/// every budget. `budget` is 0; deviation, bca, p_holm, detectable, beside and seeds are not set.
BudgetMean mean_over_budgets(const ArmResult& arm);
PairedDifference difference_over_budgets(const ArmResult& arm, const ArmResult& reference);

/// Returns one sentence that names the arms and budgets at which the measure is 0 and every answer is unreadable or
/// empty; "" if there are none.
std::string unreadable(const StudyRuns& study, const ScoreLookup& scores, const Comparison& comparison,
                       const ServedResult& result);

}  // namespace evenkeel::comparison
