/// \file  Makes the parts of the page's data (report/page_data.h). Each is the JSON of one section of the page. Arms
/// and runs are identified by their index in the lists "arms" and "runs" of the data. Numbers have six significant
/// digits (four in heat maps), shares are from 0 to 1, and unknown values are left out or null.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/plain/json.h"
#include "comparison/compared_runs.h"
#include "comparison/score_lookup.h"
#include "comparison/statistics.h"

namespace evenkeel::report::page {

/// Returns a number rounded to `digits` significant digits.
double rounded(double number, int digits = 6);
/// Returns a rounded number, or null.
OrderedJson number(const std::optional<double>& value);
/// Sets `json[key]` to the rounded number, if there is one.
void add(OrderedJson& json, const char* key, const std::optional<double>& value);
/// Sets "low" and "high", if there is an interval.
void add(OrderedJson& json, const std::optional<comparison::Interval>& interval);

/// What the parts are made from.
struct Source {
  const comparison::StudyRuns& study;
  std::vector<records::RunRecords> runs;  ///< the study's runs that have records, arm by arm, then by seed
  std::vector<size_t> arm_of_run;         ///< index of the arm of each of `runs`
  /// K by budget. Empty if scores at one budget differ in K, as scores of rank methods do, or if the model is dense.
  std::map<double, int64_t> top_ks;

  explicit Source(const comparison::StudyRuns& study_of_page);
  /// Returns the index of an arm in study.arms.
  size_t index(const std::string& arm) const;
  /// Returns the name of an arm in legends: "ub-smoe", "fedit (reference)", "hetlora (a)".
  std::string name(const std::string& arm, const std::string& rank_eval_mode) const;
  /// Returns the name of a budget: "K = 4", or "budget 0.5" without top_ks.
  std::string name(double budget) const;
};

/// Returns one entry per measure and task: means by budget, single runs, differences, chance and majority, conclusions.
OrderedJson views_json(const Source& source, const comparison::ScoreLookup& scores);
/// Returns one entry per measure: curves over rounds, for the mean over budgets and for each budget.
OrderedJson progress_json(const Source& source, const comparison::ScoreLookup& scores, std::span<const double> budgets);
/// Returns one entry per quantity of rounds: training loss, experts per token, metrics of methods, use of
/// experts, privacy.
OrderedJson training_json(const Source& source);
/// Returns the mean traffic, FLOPs and seconds of an arm's runs up to each round, as one list per quantity.
OrderedJson spent_json(std::span<const records::RunRecords* const> runs);
/// Returns the utilisation of experts in one run per arm, for at most eight arms, and UB-SMoE's router offset phi
/// against the utilisation.
OrderedJson experts_json(const Source& source);
/// Returns the scores of single clients, by run and side by side.
OrderedJson clients_json(const Source& source);
/// Returns costs by arm: totals per run, costs of 1,000 tokens by K, and traffic by content.
OrderedJson costs_json(const Source& source);

}  // namespace evenkeel::report::page
