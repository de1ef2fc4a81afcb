/// \file  Averages over the runs of an arm what its rounds measured: scores, losses, and what had been spent.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comparison/compared_runs.h"
#include "comparison/statistics.h"
#include "scoring/measures.h"

namespace evenkeel::comparison {

/// Mean over the runs of an arm that have a value after a round.
struct CurvePoint {
  int64_t round = 0;  ///< rounds done; 0: before the first
  int64_t runs = 0;   ///< number of runs with a value
  double mean = 0;
  std::optional<Interval> interval{};  ///< 95 %, by t over runs
};

/// A quantity of an arm over rounds.
struct Curve {
  std::string arm;
  std::string rank_eval_mode{};                              ///< rank evaluation mode, "a" or "b"; empty: none
  std::vector<CurvePoint> points{};                          ///< ascending by round
  std::vector<std::vector<std::optional<double>>> by_run{};  ///< per run of runs_of(): one value per point
};

/// Returns the runs of an arm that have records, by seed.
std::vector<const records::RunRecords*> runs_of(const StudyRuns& study, const std::string& arm);

/// Returns the curves of a measure with the run's own routing, mean over the tasks that have it. There is one per arm
/// and rank evaluation mode that has values. A run has a value if it has the measure of every task, at this budget, or
/// without a budget at all budgets, whose mean is taken.
std::vector<Curve> score_curves(const StudyRuns& study, const scoring::Measure& measure, std::optional<double> budget);

/// Returns a quantity of a round; nothing if the round does not have it.
using RoundValue = std::function<std::optional<double>(const fed::RoundRecord&)>;
/// Returns the curves of a quantity of rounds, one per arm that has values.
std::vector<Curve> round_curves(const StudyRuns& study, const RoundValue& value);

/// What had been spent after a round since the beginning.
struct Spent {
  int64_t round = 0;
  double bytes = 0;                         ///< up and down, all clients
  double flops = 0;                         ///< of training
  double seconds = 0;                       ///< measured, without evaluations
  std::optional<double> simulated_seconds;  ///< empty if clients have no machine profiles
};
/// Returns what a run had spent before its first round and after each round.
std::vector<Spent> spent_by(const records::RunRecords& run);
/// Returns the means over runs, for every round that some run has done.
std::vector<Spent> mean_spent(std::span<const records::RunRecords* const> runs);

}  // namespace evenkeel::comparison
