#include "comparison/views.h"

#include <algorithm>

#include "base/plain/error.h"

namespace evenkeel::comparison {
namespace {

/// Returns the mean of a member over the tasks that ask for choices; nothing without such a task.
std::optional<double> level_of(const ScoreLookup& scores, const std::vector<std::string>& tasks,
                               double scoring::TaskScore::*member) {
  std::vector<double> values;
  for (const auto& task : tasks) {
    const auto found = std::find_if(scores.all().begin(), scores.all().end(), [&](const scoring::TaskScore& score) {
      return score.task == task && score.kind == scoring::AnswerKind::kChoice;
    });
    if (found != scores.all().end()) values.push_back((*found).*member);
  }
  return values.empty() ? std::nullopt : std::optional(mean_of(values));
}

View view_of(const StudyRuns& study, const ScoreLookup& scores, const scoring::Measure& measure,
             const std::string& task) {
  CompareOptions options{.endpoint = std::string(measure.name), .bootstrap = false, .beside = false};
  if (!task.empty()) options.tasks = {task};
  View view{.task = task, .comparison = compare(study, scores, options)};
  if (!measure.is_share || !measure.higher_is_better) return view;
  const auto& tasks = view.comparison.served.front().tasks;
  view.chance = level_of(scores, tasks, &scoring::TaskScore::chance);
  view.majority = level_of(scores, tasks, &scoring::TaskScore::majority);
  return view;
}

std::optional<double> mean_if_complete(const ArmResult& arm, size_t seed) {
  double sum = 0;
  for (const auto& budget : arm.budgets) {
    if (!budget.by_seed[seed]) return std::nullopt;
    sum += *budget.by_seed[seed];
  }
  return arm.budgets.empty() ? std::nullopt : std::optional(sum / static_cast<double>(arm.budgets.size()));
}

/// Returns the means over budgets, one per seed.
std::vector<std::optional<double>> seed_means(const ArmResult& arm) {
  std::vector<std::optional<double>> means;
  const size_t seeds = arm.budgets.empty() ? 0 : arm.budgets.front().by_seed.size();
  for (size_t i = 0; i < seeds; ++i) means.push_back(mean_if_complete(arm, i));
  return means;
}

/// The scores of one arm at one budget.
struct Cell {
  const StudyRuns& study;
  const ScoreLookup& scores;
  const ServedResult& result;
  Aspect aspect;
  double budget;

  /// Returns true if a measure has this value in every score that has it, and some score has it.
  bool is_all(const scoring::Measure& measure, double expected) const {
    bool any = false;
    for (const int64_t seed : study.seeds)
      for (const auto& task : result.tasks) {
        const auto value = scores.value(aspect, seed, budget, task, measure);
        if (value && *value != expected) return false;
        any = any || value;
      }
    return any;
  }
};

bool is_unreadable(const Cell& cell, const scoring::Measure& measure) {
  if (!cell.is_all(measure, 0)) return false;
  return cell.is_all(scoring::find_measure("invalid_rate"), 1) || cell.is_all(scoring::find_measure("empty_rate"), 1);
}

}  // namespace

std::vector<View> views_of(const StudyRuns& study, const ScoreLookup& scores) {
  std::vector<View> views;
  const size_t all_tasks = scoring::distinct(std::span(scores.all()), &scoring::TaskScore::task).size();
  for (const auto& measure : scoring::measures()) {
    const auto tasks = tasks_with(scores.all(), measure);
    if (tasks.empty()) continue;
    views.push_back(view_of(study, scores, measure, ""));
    if (all_tasks > 1)
      for (const auto& task : tasks) views.push_back(view_of(study, scores, measure, task));
  }
  return views;
}

BudgetMean mean_over_budgets(const ArmResult& arm) {
  BudgetMean result{.budget = 0, .by_seed = seed_means(arm), .mean = {}, .deviation = {}, .interval = {}, .beside = {}};
  std::vector<double> values;
  for (const auto& value : result.by_seed)
    if (value) values.push_back(*value);
  result.complete = static_cast<int64_t>(values.size());
  if (!values.empty()) result.mean = mean_of(values);
  result.interval = t_interval(values);
  return result;
}

PairedDifference difference_over_budgets(const ArmResult& arm, const ArmResult& reference) {
  PairedDifference result{.budget = 0,
                          .seeds = {},
                          .by_seed = {},
                          .mean = {},
                          .deviation = {},
                          .t = {},
                          .bca = {},
                          .p = {},
                          .p_holm = {},
                          .detectable = {}};
  const auto mine = seed_means(arm), other = seed_means(reference);
  for (size_t i = 0; i < mine.size() && i < other.size(); ++i)
    if (mine[i] && other[i]) result.by_seed.push_back(*mine[i] - *other[i]);
  if (!result.by_seed.empty()) result.mean = mean_of(result.by_seed);
  result.t = paired_interval(result.by_seed);
  result.p = t_test(result.by_seed);
  return result;
}

std::string unreadable(const StudyRuns& study, const ScoreLookup& scores, const Comparison& comparison,
                       const ServedResult& result) {
  const auto& measure = *comparison.endpoint;
  if (!measure.is_share || !measure.higher_is_better) return {};
  std::vector<std::string> arms;
  size_t found = 0, all = 0;
  for (const auto& arm : result.arms) {
    std::vector<std::string> budgets;
    for (const auto& budget : arm.budgets) {
      if (!budget.mean) continue;
      ++all;
      if (is_unreadable({study, scores, result, {arm.arm, arm.rank_eval_mode, result.served_by}, budget.budget},
                        measure))
        budgets.push_back(concat(budget.budget));
    }
    found += budgets.size();
    if (!budgets.empty())
      arms.push_back(concat(arm.label, budgets.size() > 1 ? " at budgets " : " at budget ", join(budgets)));
  }
  if (found == 0) return {};
  const auto where = found == all ? std::string("everywhere") : join(arms, "; ");
  return concat("This measure is 0 ", found == all ? "" : "for ", where,
                ": 100 % of the answers there cannot be read or are empty.");
}

}  // namespace evenkeel::comparison
