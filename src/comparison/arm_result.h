/// \file  Defines the results of one arm of a study: means, and differences to the reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comparison/differences.h"
#include "comparison/statistics.h"
#include "scoring/task_score.h"

namespace evenkeel::comparison {

/// Mean of an arm at a budget over the complete seeds. A seed is complete if it has a score of every task that has the
/// endpoint.
struct BudgetMean {
  double budget = 1;
  std::vector<std::optional<double>> by_seed;  ///< mean over tasks, in the order of the seeds; empty: not complete
  int64_t complete = 0;                        ///< number of complete seeds
  std::optional<double> mean, deviation;       ///< over complete seeds; deviation only with two or more
  std::optional<Interval> interval;            ///< 95 % t interval over seeds
  /// Means of the other measures over the tasks that have them, in the order of Comparison::beside. An entry is empty
  /// if a complete seed lacks the measure.
  std::vector<std::optional<double>> beside;
};

/// Difference of an arm to the reference at a budget, paired by seed.
struct PairedDifference {
  double budget = 1;
  std::vector<int64_t> seeds;   ///< seeds that are complete in both arms
  std::vector<double> by_seed;  ///< arm minus reference, mean over tasks
  std::optional<double> mean, deviation;
  /// 95 % intervals: t interval over seeds; bootstrap (bca_interval()). If `by_seed` are_alike(), t is empty, and so is
  /// bca unless items are resampled.
  std::optional<Interval> t, bca;
  bool items = false;  ///< the bootstrap also resampled items within seeds
  /// p: p-value of the paired t-test. p_holm: p corrected by Holm's method. detectable: detectable_difference() of
  /// `by_seed`.
  std::optional<double> p, p_holm, detectable;
};

/// Counts the pairs (seed, budget) of one task by the sign of their difference. A win is a better value than the
/// reference's.
struct TaskRecord {
  std::string task;
  int64_t wins = 0, losses = 0, ties = 0;
};

/// A property in which an arm differs from its reference, and which changes loss or scores even at equal weights
/// (comparison/differences.h).
struct FunctionDifference {
  std::string what;         ///< such as "gating", "K of scores" or "data.template"
  std::string own, others;  ///< values of the arm and of its reference
};

/// An arm in one rank evaluation mode. An arm of a rank method has one ArmResult per mode, other arms have one.
struct ArmResult {
  std::string label;           ///< "hetlora (a)", or the arm's name
  std::string arm;             ///< name of the arm
  std::string rank_eval_mode;  ///< rank evaluation mode, "a" or "b"; empty: the method has none
  bool is_reference = false;
  std::string reference{};  ///< label of the ArmResult that this one is compared with; empty for the reference
  std::vector<BudgetMean> budgets;
  std::vector<PairedDifference> differences;  ///< by budget; empty for the reference
  std::vector<TaskRecord> tasks;              ///< empty for the reference
  std::vector<FunctionDifference> unlike{};   ///< differences from the reference other than the method
};

/// The scores of one way of serving: the run itself, or an exported adapter.
struct ServedResult {
  scoring::ServedBy served_by = scoring::ServedBy::kRun;
  std::vector<std::string> tasks;          ///< tasks that have the endpoint
  std::vector<std::string> without;        ///< tasks that do not have the endpoint
  std::vector<double> budgets;             ///< ascending
  std::vector<ArmResult> arms;             ///< in the order of the study
  int64_t comparisons = 0;                 ///< number of p-values that Holm's method corrected together
  std::vector<std::string> conclusions{};  ///< one sentence per arm that is not the reference
  /// Labels of arms whose exported adapter was not scored. The scores of the run are used, because other programs
  /// compute the same. Empty for the run itself.
  std::vector<std::string> as_in_run{};
  /// Arms that are left out, because evaluate.as_exported was false in one of their runs.
  std::vector<std::string> not_exported{};
  /// Properties that differ between arms and change loss or scores at equal weights, with the labels of ArmResult.
  std::vector<Difference> unlike{};
};

}  // namespace evenkeel::comparison
